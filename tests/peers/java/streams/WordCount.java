import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;

import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts words with Kafka Streams, exactly once: each word of SOURCE makes a record of TARGET, "word count".
 *
 * WordCount BOOTSTRAP APPLICATION SOURCE TARGET STATE_DIRECTORY STOP_AT: it says "stopped" and does nothing more within
 * the transaction of the count that is number STOP_AT of this process; 0: it goes on until it is killed.
 */
public class WordCount {
    private static final int SESSION_TIMEOUT_MS = 6_000;

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // each count is told, not only the latest
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), SESSION_TIMEOUT_MS);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 20);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Long> counts = builder.<String, String>stream(arguments[2])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream();
        counts.mapValues((word, count) -> word + " " + count).to(arguments[3]);
        long stopAt = Long.parseLong(arguments[5]);
        AtomicLong counted = new AtomicLong();
        counts.foreach((word, count) -> { // behind `to`: the count has been handed to the producer
            if (counted.incrementAndGet() == stopAt)
                stop();
        });
        new KafkaStreams(builder.build(), settings).start();
        new CountDownLatch(1).await();
    }

    private static void stop() {
        System.out.println("stopped");
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
