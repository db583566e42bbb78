import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What Apache Kafka's own code does with record batches. A line of JSON in, a line of JSON out, bytes in hexadecimal:
 * {"what": "read" | "write" | "append", "elements": [...]} is answered by a list, an answer for each element.
 */
public class KafkaRecords {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            List<Object> answers = new ArrayList<>();
            for (JsonNode element : question.get("elements"))
                answers.add(switch (question.get("what").asText()) {
                    case "read" -> read(HEX.parseHex(element.asText()));
                    case "write" -> HEX.formatHex(bytes(write(element, element.get("base_offset").asLong())));
                    case "append" -> append(element);
                    default -> throw new IllegalArgumentException(line);
                });
            System.out.write(JSON.writeValueAsBytes(answers));
            System.out.println();
            System.out.flush();
        }
    }

    /** The records of all batches in the bytes, checksums checked; of a control batch what it decides. */
    private static List<Object> read(byte[] bytes) {
        List<Object> output = new ArrayList<>();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                if (batch.isControlBatch()) {
                    EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
                    output.add(List.of(marker.controlType().name(), marker.coordinatorEpoch()));
                } else {
                    List<Object> headers = new ArrayList<>();
                    for (Header header : record.headers())
                        headers.add(list(header.key(), header.value() == null ? null : HEX.formatHex(header.value())));
                    output.add(list(record.offset(), record.timestamp(), hex(record.key()), hex(record.value()), headers));
                }
            }
        }
        return output;
    }

    private static MemoryRecords write(JsonNode batch, long baseOffset) {
        long producerId = batch.get("producer_id").asLong();
        short epoch = (short) batch.get("producer_epoch").asInt();
        if (batch.has("marker")) {
            ControlRecordType type = ControlRecordType.valueOf(batch.get("marker").asText());
            EndTransactionMarker marker = new EndTransactionMarker(type, batch.get("coordinator_epoch").asInt());
            return MemoryRecords.withEndTransactionMarker(
                baseOffset, batch.get("timestamp").asLong(), -1, producerId, epoch, marker);
        }
        CompressionType codec = CompressionType.forName(batch.get("codec").asText());
        try (MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(4096), RecordBatch.MAGIC_VALUE_V2, Compression.of(codec).build(),
                TimestampType.CREATE_TIME, baseOffset, RecordBatch.NO_TIMESTAMP, producerId, epoch,
                batch.get("base_sequence").asInt(), batch.get("is_transactional").asBoolean(), -1)) {
            for (JsonNode record : batch.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get(3))
                    headers.add(new RecordHeader(header.get(0).asText(), parse(header.get(1))));
                builder.append(
                    record.get(0).asLong(), parse(record.get(1)), parse(record.get(2)), headers.toArray(new Header[0]));
            }
            return builder.build();
        }
    }

    /**
     * Append batches to a log of no segments: what is decided on each, which transactions ended and where the last stable
     * offset was then, and what is known of the producers after all.
     */
    private static Object append(JsonNode batches) throws Exception {
        File folder = Files.createTempDirectory("producers").toFile(); // stays empty
        ProducerStateManager states = new ProducerStateManager(
            new TopicPartition("topic", 0), folder, 900_000, new ProducerStateManagerConfig(86_400_000, true), Time.SYSTEM);
        Files.delete(folder.toPath());
        List<Object> decisions = new ArrayList<>();
        List<Object> transactions = new ArrayList<>();
        long endOffset = 0;
        for (JsonNode element : batches) {
            MutableRecordBatch batch = write(element, endOffset).batches().iterator().next();
            Optional<BatchMetadata> duplicate = findDuplicate(states, batch);
            if (duplicate.isPresent()) {
                decisions.add(duplicate.get().firstOffset());
                continue;
            }
            try {
                AppendOrigin origin = batch.isControlBatch() ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT;
                ProducerAppendInfo update = states.prepareUpdate(batch.producerId(), origin);
                short transactionVersion = (short) element.path("transaction_version").asInt(1);
                Optional<CompletedTxn> ended = update.append(batch, Optional.empty(), transactionVersion);
                states.update(update);
                if (ended.isPresent()) {
                    CompletedTxn txn = ended.get();
                    transactions.add(list(
                        txn.producerId(), txn.firstOffset(), txn.lastOffset(), states.lastStableOffset(txn), txn.isAborted()));
                    states.completeTxn(txn);
                }
                endOffset = batch.nextOffset();
                decisions.add("fresh");
            } catch (ApiException error) {
                decisions.add(Errors.forException(error).name());
            }
        }
        Map<Long, Object> entries = new LinkedHashMap<>();
        states.activeProducers().forEach((producerId, entry) -> entries.put(producerId, describe(entry)));
        return Map.of("decisions", decisions, "transactions", transactions, "producers", entries);
    }

    @SuppressWarnings("unchecked")
    private static Optional<BatchMetadata> findDuplicate(ProducerStateManager states, RecordBatch batch) throws Exception {
        Optional<ProducerStateEntry> entry = states.lastEntry(batch.producerId());
        if (batch.isControlBatch() || entry.isEmpty())
            return Optional.empty();
        Method find = ProducerStateEntry.class.getDeclaredMethod("findDuplicateBatch", RecordBatch.class);
        find.setAccessible(true);
        return (Optional<BatchMetadata>) find.invoke(entry.get(), batch);
    }

    private static List<Object> describe(ProducerStateEntry entry) {
        List<Object> batches = new ArrayList<>();
        for (BatchMetadata batch : entry.batchMetadata())
            batches.add(List.of(batch.firstSeq(), batch.lastSeq(), batch.firstOffset(), batch.lastOffset(), batch.timestamp()));
        Long start = entry.currentTxnFirstOffset().isPresent() ? entry.currentTxnFirstOffset().getAsLong() : null;
        return list((int) entry.producerEpoch(), entry.coordinatorEpoch(), entry.lastTimestamp(), batches, start);
    }

    private static List<Object> list(Object... elements) {
        return java.util.Arrays.asList(elements);
    }

    private static String hex(ByteBuffer buffer) {
        return buffer == null ? null : HEX.formatHex(bytes(buffer));
    }

    private static byte[] bytes(MemoryRecords records) {
        return bytes(records.buffer());
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static byte[] parse(JsonNode hex) {
        return hex.isNull() ? null : HEX.parseHex(hex.asText());
    }
}
