import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Transactional producers, each with a name that the case gave it. */
class TransactionCases {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    TransactionCases(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    Object carryOut(JsonNode asked) throws Exception {
        String name = asked.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (asked.get("op").asText()) {
            case "txn_open" -> {
                producers.put(name, producer(asked));
                producers.get(name).initTransactions();
            }
            case "txn_begin" -> producer.beginTransaction();
            case "txn_send" -> producer.send(new ProducerRecord<>(
                ClientCases.topic(asked), asked.get("partition").asInt(), null, ClientCases.bytes(asked.get("value"))
            )).get(ClientCases.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            case "txn_send_offset" -> producer.sendOffsetsToTransaction(
                Map.of(
                    new TopicPartition(ClientCases.topic(asked), asked.get("partition").asInt()),
                    new OffsetAndMetadata(asked.get("offset").asLong())),
                new ConsumerGroupMetadata(ClientCases.group(asked)));
            case "txn_commit" -> producer.commitTransaction();
            case "txn_abort" -> producer.abortTransaction();
            case "txn_close" -> producers.remove(name).close(Duration.ZERO); // without a word about what is open
            default -> throw new IllegalArgumentException(asked.toString());
        }
        return null;
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", asked.get("transactional_id").asText());
        settings.put("transaction.timeout.ms", asked.get("timeout_ms").asInt());
        settings.put("max.block.ms", ClientCases.PATIENCE.toMillis());
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /**
     * Copies what comes, in transactions of a few records. It says {"open": the values} when all of a transaction is
     * with the broker, commits when it is given a line, and says {"committed": count}. It goes on until it is killed.
     */
    void copy(JsonNode wanted) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", ClientCases.group(wanted));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", wanted.get("each").asInt());
        settings.put("session.timeout.ms", wanted.get("session_timeout_ms").asInt());
        settings.put("heartbeat.interval.ms", 500);
        try (var producer = producer(wanted);
             var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(wanted.get("source").asText()));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty())
                    continue;
                List<Object> values = new ArrayList<>();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(wanted.get("target").asText(), record.partition(), record.key(), record.value()));
                    values.add(ClientCases.text(record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.flush();
                ClientCases.say(Map.of("open", values));
                ClientCases.IN.readLine();
                producer.commitTransaction();
                ClientCases.say(Map.of("committed", values.size()));
            }
        }
    }
}
