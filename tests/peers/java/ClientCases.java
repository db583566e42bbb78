import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * What the Java client can do, for the cases that all clients share.
 *
 * ClientCases BOOTSTRAP: a line of JSON in, {"op": ..., arguments}, a line of JSON out: {"result": ...}, or
 * {"refused": Kafka's error code, "message": ...}, or {"broken": ...}. Bytes travel in Base64.
 *
 * ClientCases BOOTSTRAP member SETTINGS: a member of a group. It tells each assignment, revocation, batch of records
 * and commit as a line of JSON, and leaves when its input ends.
 *
 * ClientCases BOOTSTRAP copy SETTINGS: copies one topic to another in transactions; see TransactionCases.
 */
public class ClientCases {
    static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final int BYTES_MAX = 32 * 1024 * 1024;

    private final String bootstrap;
    private final Admin admin;
    private final TransactionCases transactions;

    private ClientCases(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(settings());
        this.transactions = new TransactionCases(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        ClientCases cases = new ClientCases(arguments[0]);
        if (arguments.length > 1 && arguments[1].equals("copy"))
            cases.transactions.copy(JSON.readTree(arguments[2]));
        else if (arguments.length > 1)
            cases.beMember(JSON.readTree(arguments[2]));
        else
            for (String line = IN.readLine(); line != null; line = IN.readLine())
                say(cases.answer(JSON.readTree(line)));
        cases.admin.close();
    }

    private Map<String, Object> answer(JsonNode asked) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.put("result", carryOut(asked));
        } catch (InvalidOffsetException error) {
            answer.put("refused", (int) Errors.OFFSET_OUT_OF_RANGE.code());
            answer.put("message", error.toString());
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            Errors code = Errors.forException(cause);
            answer.put(cause instanceof ApiException ? "refused" : "broken", (int) code.code());
            answer.put("message", cause.toString());
        }
        return answer;
    }

    private Object carryOut(JsonNode asked) throws Exception {
        return switch (asked.get("op").asText()) {
            case "produce" -> produce(asked);
            case "consume" -> consume(asked);
            case "ends" -> ends(asked);
            case "offset_at" -> offsetAt(asked);
            case "list_offset" -> listOffset(asked);
            case "create_topic" -> createTopic(asked);
            case "delete_topic" -> done(admin.deleteTopics(List.of(topic(asked))).all());
            case "delete_records" -> deleteRecords(asked);
            case "partition_counts" -> partitionCounts();
            case "settings" -> settingsOf(asked);
            case "alter_settings" -> alterSettings(asked);
            case "create_partitions" -> done(admin.createPartitions(
                Map.of(topic(asked), NewPartitions.increaseTo(asked.get("count").asInt()))).all());
            case "describe_cluster" -> describeCluster();
            case "log_sizes" -> logSizes(asked);
            case "producers" -> producers(asked);
            case "commit" -> commit(asked);
            case "committed" -> committed(asked);
            case "consume_in_group" -> consumeInGroup(asked);
            case "alter_group_offsets" -> alterGroupOffsets(asked);
            case "delete_group_offsets" -> done(admin.deleteConsumerGroupOffsets(
                group(asked), Set.copyOf(partitions(asked))).all());
            case "groups" -> groups();
            case "describe_group" -> describeGroup(asked);
            case "delete_group" -> done(admin.deleteConsumerGroups(List.of(group(asked))).all());
            case "client_apis" -> ApiKeys.clientApis().stream().map(api -> list((int) api.id, api.name)).toList();
            case "attempt" -> attempt(asked);
            default -> transactions.carryOut(asked);
        };
    }

    // --- records --------------------------------------------------------------------------------------------------

    /** Says {"sent": count} when all is handed over, and waits for a line before it asks for the outcome. */
    private Object produce(JsonNode asked) throws Exception {
        Map<String, Object> settings = settings();
        settings.put("acks", asked.get("acks").asText());
        settings.put("compression.type", asked.get("compression").asText());
        settings.put("enable.idempotence", asked.get("idempotent").asBoolean());
        settings.put("linger.ms", 20);
        settings.put("max.request.size", BYTES_MAX);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : asked.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers"))
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                sent.add(producer.send(new ProducerRecord<>(
                    topic(asked), record.get("partition").asInt(), record.get("timestamp_ms").asLong(),
                    bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            say(Map.of("sent", sent.size()));
            IN.readLine();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> future : sent)
                offsets.add(future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS).offset());
            return offsets;
        }
    }

    private Object consume(JsonNode asked) {
        try (var consumer = consumer(Map.of("isolation.level", asked.get("isolation").asText()))) {
            consumer.assign(List.of(partition(asked)));
            consumer.seek(partition(asked), asked.get("start").asLong());
            return take(consumer, asked.get("count").asInt());
        }
    }

    private static List<Object> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<Object> received = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (received.size() < count) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException("only " + received.size() + " of " + count + " records came");
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)))
                if (received.size() < count)
                    received.add(told(record));
        }
        return received;
    }

    private static Object told(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers())
            headers.add(list(header.key(), text(header.value())));
        return list(record.offset(), text(record.value()), text(record.key()), headers, record.timestamp());
    }

    private Object ends(JsonNode asked) {
        TopicPartition partition = partition(asked);
        try (var consumer = consumer(Map.of())) {
            return list(
                consumer.beginningOffsets(List.of(partition)).get(partition),
                consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private Object offsetAt(JsonNode asked) {
        TopicPartition partition = partition(asked);
        try (var consumer = consumer(Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, asked.get("timestamp_ms").asLong())).get(partition);
            return found == null ? null : found.offset();
        }
    }

    private Object listOffset(JsonNode asked) throws Exception {
        JsonNode wanted = asked.get("spec");
        OffsetSpec spec = switch (wanted.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            case "earliest_local" -> OffsetSpec.earliestLocal();
            case "latest_tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.forTimestamp(wanted.asLong());
        };
        ListOffsetsResultInfo found = wait(admin.listOffsets(Map.of(partition(asked), spec)).all()).get(partition(asked));
        return list(found.offset(), found.timestamp());
    }

    // --- topics ---------------------------------------------------------------------------------------------------

    private Object createTopic(JsonNode asked) throws Exception {
        NewTopic topic = new NewTopic(topic(asked), asked.get("partitions").asInt(), (short) 1);
        return done(admin.createTopics(List.of(topic.configs(strings(asked.get("config"))))).all());
    }

    private Object deleteRecords(JsonNode asked) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(asked.get("offset").asLong());
        return wait(admin.deleteRecords(Map.of(partition(asked), before)).lowWatermarks().get(partition(asked))).lowWatermark();
    }

    private Object partitionCounts() throws Exception {
        Map<String, Integer> counts = new TreeMap<>();
        Set<String> names = wait(admin.listTopics().names());
        for (TopicDescription topic : wait(admin.describeTopics(names).allTopicNames()).values())
            counts.put(topic.name(), topic.partitions().size());
        return counts;
    }

    private Object settingsOf(JsonNode asked) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(asked));
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry entry : wait(admin.describeConfigs(List.of(resource)).all()).get(resource).entries())
            found.put(entry.name(), entry.value());
        return found;
    }

    private Object alterSettings(JsonNode asked) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        asked.get("settings").fields().forEachRemaining(setting -> changes.add(new AlterConfigOp(
            new ConfigEntry(setting.getKey(), setting.getValue().isNull() ? "" : setting.getValue().asText()),
            setting.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(asked));
        return done(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    // --- the cluster ----------------------------------------------------------------------------------------------

    private Object describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<String> brokers = new ArrayList<>();
        for (Node node : wait(cluster.nodes()))
            brokers.add(node.host() + ":" + node.port());
        return Map.of(
            "cluster_id", wait(cluster.clusterId()), "brokers", brokers, "controller", wait(cluster.controller()).id());
    }

    private Object logSizes(JsonNode asked) throws Exception {
        Map<Integer, Long> sizes = new TreeMap<>();
        for (var folders : wait(admin.describeLogDirs(List.of(wait(admin.describeCluster().controller()).id())).allDescriptions()).values())
            for (var folder : folders.values())
                folder.replicaInfos().forEach((partition, replica) -> {
                    if (partition.topic().equals(topic(asked)))
                        sizes.put(partition.partition(), replica.size());
                });
        return sizes;
    }

    private Object producers(JsonNode asked) throws Exception {
        List<Object> found = new ArrayList<>();
        var states = wait(admin.describeProducers(List.of(partition(asked))).partitionResult(partition(asked)));
        for (ProducerState state : states.activeProducers())
            found.add(list(state.producerId(), state.producerEpoch(), state.lastSequence()));
        return found;
    }

    // --- groups ---------------------------------------------------------------------------------------------------

    private Object commit(JsonNode asked) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        asked.get("offsets").fields().forEachRemaining(entry -> offsets.put(
            new TopicPartition(topic(asked), Integer.parseInt(entry.getKey())),
            new OffsetAndMetadata(entry.getValue().get(0).asLong(), entry.getValue().get(1).asText())));
        try (var consumer = consumer(Map.of("group.id", group(asked)))) {
            consumer.assign(offsets.keySet());
            if (!asked.get("asynchronous").asBoolean()) {
                consumer.commitSync(offsets, PATIENCE);
                return null;
            }
            CompletableFuture<Void> committed = new CompletableFuture<>();
            consumer.commitAsync(offsets, (done, error) -> {
                if (error == null)
                    committed.complete(null);
                else
                    committed.completeExceptionally(error);
            });
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (!committed.isDone() && System.nanoTime() < deadline)
                consumer.poll(Duration.ofMillis(10));
            return committed.get(0, TimeUnit.SECONDS);
        }
    }

    private Object committed(JsonNode asked) throws Exception {
        Map<Integer, Object> found = new TreeMap<>();
        var offsets = wait(admin.listConsumerGroupOffsets(group(asked)).partitionsToOffsetAndMetadata());
        offsets.forEach((partition, offset) -> {
            if (offset != null && partition.topic().equals(topic(asked)))
                found.put(partition.partition(), list(offset.offset(), offset.metadata()));
        });
        return found;
    }

    private Object consumeInGroup(JsonNode asked) {
        Map<String, Object> settings = Map.of(
            "group.id", group(asked), "auto.offset.reset", "earliest", "max.poll.records", asked.get("count").asInt());
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(topic(asked)));
            List<Object> received = take(consumer, asked.get("count").asInt());
            consumer.commitSync(PATIENCE);
            return received;
        }
    }

    private Object alterGroupOffsets(JsonNode asked) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        asked.get("offsets").fields().forEachRemaining(entry -> offsets.put(
            new TopicPartition(topic(asked), Integer.parseInt(entry.getKey())),
            new OffsetAndMetadata(entry.getValue().asLong())));
        return done(admin.alterConsumerGroupOffsets(group(asked), offsets).all());
    }

    @SuppressWarnings("deprecation") // the names that 3.9 and 4.4 share
    private Object groups() throws Exception {
        Map<String, String> states = new TreeMap<>();
        for (ConsumerGroupListing group : wait(admin.listConsumerGroups().all()))
            states.put(group.groupId(), group.state().map(Object::toString).orElse(""));
        return states;
    }

    @SuppressWarnings("deprecation")
    private Object describeGroup(JsonNode asked) throws Exception {
        ConsumerGroupDescription group = wait(admin.describeConsumerGroups(List.of(group(asked))).all()).get(group(asked));
        Map<String, Object> members = new TreeMap<>();
        for (MemberDescription member : group.members()) {
            List<Object> owned = new ArrayList<>();
            for (TopicPartition partition : member.assignment().topicPartitions())
                owned.add(list(partition.topic(), partition.partition()));
            members.put(member.clientId(), owned);
        }
        return Map.of("state", group.state().toString(), "protocol", group.partitionAssignor(), "members", members);
    }

    private void beMember(JsonNode wanted) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("group.id", group(wanted));
        settings.put("client.id", wanted.get("client_id").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", wanted.get("session_timeout_ms").asInt());
        settings.put("heartbeat.interval.ms", 500);
        settings.put("partition.assignment.strategy", ASSIGNORS.get(wanted.get("assignor").asText()));
        if (!wanted.get("instance_id").isNull())
            settings.put("group.instance.id", wanted.get("instance_id").asText());
        List<String> topics = new ArrayList<>();
        wanted.get("topics").forEach(topic -> topics.add(topic.asText()));
        AtomicBoolean isWanted = new AtomicBoolean(true);
        Thread listener = new Thread(() -> {
            try {
                while (IN.readLine() != null);
            } catch (IOException ended) {
                // then it has ended as well
            }
            isWanted.set(false);
        });
        listener.setDaemon(true);
        listener.start();
        try (var consumer = consumer(settings)) {
            consumer.subscribe(topics, new TellingListener());
            while (isWanted.get()) {
                List<Object> records = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                    records.add(list(record.topic(), record.partition(), record.offset(), text(record.value())));
                if (!records.isEmpty()) {
                    say(Map.of("records", records));
                    consumer.commitSync(PATIENCE);
                    say(Map.of("committed", records.size()));
                }
            }
        }
        say(Map.of("closed", true));
    }

    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private static class TellingListener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private static void tell(String what, Collection<TopicPartition> partitions) {
            say(Map.of(what, partitions.stream().map(partition -> list(partition.topic(), partition.partition())).toList()));
        }
    }

    // --- what is refused ------------------------------------------------------------------------------------------

    /** Calls of the administration that need no more of an outcome than whether they are refused. */
    private Object attempt(JsonNode asked) throws Exception {
        Set<TopicPartition> partition = Set.of(new TopicPartition(topic(asked), 0));
        AclBinding acl = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, topic(asked), PatternType.LITERAL),
            new AccessControlEntry("User:somebody", "*", AclOperation.READ, AclPermissionType.ALLOW));
        ClientQuotaAlteration quota = new ClientQuotaAlteration(
            new ClientQuotaEntity(Map.of("client-id", "x")), List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)));
        return switch (asked.get("call").asText()) {
            case "DescribeAcls" -> done(admin.describeAcls(AclBindingFilter.ANY).values());
            case "CreateAcls" -> done(admin.createAcls(List.of(acl)).all());
            case "DeleteAcls" -> done(admin.deleteAcls(List.of(acl.toFilter())).all());
            case "AlterReplicaLogDirs" -> done(admin.alterReplicaLogDirs(
                Map.of(new TopicPartitionReplica(topic(asked), 0, wait(admin.describeCluster().controller()).id()), "/elsewhere")).all());
            case "CreateDelegationToken" -> done(admin.createDelegationToken().delegationToken());
            case "RenewDelegationToken" -> done(admin.renewDelegationToken(new byte[] {1}).expiryTimestamp());
            case "ExpireDelegationToken" -> done(admin.expireDelegationToken(new byte[] {1}).expiryTimestamp());
            case "DescribeDelegationToken" -> done(admin.describeDelegationToken().delegationTokens());
            case "ElectLeaders" -> done(admin.electLeaders(ElectionType.PREFERRED, partition).all());
            case "AlterPartitionReassignments" -> done(admin.alterPartitionReassignments(
                Map.of(partition.iterator().next(), Optional.empty())).all());
            case "ListPartitionReassignments" -> done(admin.listPartitionReassignments().reassignments());
            case "DescribeClientQuotas" -> done(admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
            case "AlterClientQuotas" -> done(admin.alterClientQuotas(List.of(quota)).all());
            case "DescribeUserScramCredentials" -> done(admin.describeUserScramCredentials().all());
            case "AlterUserScramCredentials" -> done(admin.alterUserScramCredentials(List.of(
                new UserScramCredentialUpsertion("x", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "x"))).all());
            case "DescribeQuorum" -> done(admin.describeMetadataQuorum().quorumInfo());
            case "UpdateFeatures" -> done(admin.updateFeatures(
                Map.of("metadata.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions()).all());
            case "UnregisterBroker" -> done(admin.unregisterBroker(77).all());
            case "ConsumerGroupHeartbeat" -> newProtocol(asked);
            default -> throw new IllegalArgumentException(asked.toString());
        };
    }

    /** A consumer that asks for the group protocol of KIP-848. */
    private Object newProtocol(JsonNode asked) {
        try (var consumer = consumer(Map.of("group.id", topic(asked), "group.protocol", "consumer"))) {
            consumer.subscribe(List.of(topic(asked)));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline)
                consumer.poll(Duration.ofMillis(100));
            return consumer.assignment().size();
        }
    }

    // --- small things ---------------------------------------------------------------------------------------------

    private Map<String, Object> settings() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap));
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = settings();
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", false);
        settings.put("max.partition.fetch.bytes", BYTES_MAX);
        settings.put("fetch.max.bytes", BYTES_MAX);
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static <T> T wait(Future<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    private static Object done(Future<?> future) throws Exception {
        wait(future);
        return null;
    }

    static String topic(JsonNode asked) {
        return asked.get("topic").asText();
    }

    static String group(JsonNode asked) {
        return asked.get("group").asText();
    }

    private static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(topic(asked), asked.get("partition").asInt());
    }

    private static List<TopicPartition> partitions(JsonNode asked) {
        List<TopicPartition> partitions = new ArrayList<>();
        asked.get("partitions").forEach(index -> partitions.add(new TopicPartition(topic(asked), index.asInt())));
        return partitions;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> strings = new HashMap<>();
        node.fields().forEachRemaining(entry -> strings.put(entry.getKey(), entry.getValue().asText()));
        return strings;
    }

    static byte[] bytes(JsonNode base64) {
        return base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static List<Object> list(Object... elements) {
        return Arrays.asList(elements);
    }

    static synchronized void say(Map<String, Object> line) {
        try {
            OUT.println(JSON.writeValueAsString(line));
            OUT.flush();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
