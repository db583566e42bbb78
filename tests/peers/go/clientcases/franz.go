package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is franz-go: kgo to produce and consume, kadm to administer.
type franz struct {
	bootstrap string
	admin     *kadm.Client           // made anew for each call: it remembers topics for a while
	writers   map[string]*kgo.Client // the transactional ones
}

func newFranz(bootstrap string) *franz {
	return &franz{bootstrap: bootstrap, writers: map[string]*kgo.Client{}}
}

func (f *franz) codeOf(err error) (int, bool) {
	var refusal *kerr.Error
	if errors.As(err, &refusal) {
		return int(refusal.Code), true
	}
	return 0, false
}

func (f *franz) carryOut(ctx context.Context, asked asked) (any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	f.admin = kadm.NewClient(client)
	switch asked.Op {
	case "produce":
		return f.produce(ctx, asked)
	case "consume":
		return f.consume(ctx, asked)
	case "ends":
		return f.ends(ctx, asked)
	case "offset_at":
		return f.offsetAt(ctx, asked)
	case "list_offset":
		return f.listOffset(ctx, asked)
	case "create_topic":
		partitions := parsed[int32](asked.Partitions)
		_, err := f.admin.CreateTopic(ctx, partitions, 1, asked.Config, asked.Topic)
		return nil, err
	case "delete_topic":
		_, err := f.admin.DeleteTopic(ctx, asked.Topic)
		return nil, err
	case "delete_records":
		return f.deleteRecords(ctx, asked)
	case "partition_counts":
		return f.partitionCounts(ctx)
	case "settings":
		return f.settings(ctx, asked)
	case "alter_settings":
		return f.alterSettings(ctx, asked)
	case "create_partitions":
		answers, err := f.admin.UpdatePartitions(ctx, asked.Count, asked.Topic)
		return nil, errors.Join(err, answers.Error())
	case "describe_cluster":
		return f.describeCluster(ctx)
	case "log_sizes":
		return f.logSizes(ctx, asked)
	case "producers":
		return f.producers(ctx, asked)
	case "commit":
		return f.commit(ctx, asked)
	case "committed":
		return f.committed(ctx, asked)
	case "consume_in_group":
		return f.consumeInGroup(ctx, asked)
	case "alter_group_offsets":
		var offsets kadm.Offsets
		for partition, offset := range parsed[map[string]int64](asked.Offsets) {
			offsets.AddOffset(asked.Topic, number(partition), offset, -1)
		}
		return nil, f.admin.CommitAllOffsets(ctx, asked.Group, offsets)
	case "delete_group_offsets":
		topics := make(kadm.TopicsSet)
		topics.Add(asked.Topic, parsed[[]int32](asked.Partitions)...)
		answers, err := f.admin.DeleteOffsets(ctx, asked.Group, topics)
		return nil, errors.Join(err, answers.Error())
	case "groups":
		listed, err := f.admin.ListGroups(ctx)
		states := map[string]string{}
		for name, group := range listed {
			states[name] = group.State
		}
		return states, err
	case "describe_group":
		return f.describeGroup(ctx, asked)
	case "delete_group":
		_, err := f.admin.DeleteGroup(ctx, asked.Group)
		return nil, err
	}
	return nil, f.transact(ctx, asked)
}

// --- records -------------------------------------------------------------------------------------------------------

func (f *franz) produce(ctx context.Context, asked asked) (any, error) {
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[asked.Acks]
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[asked.Compression]
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap), kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(20 * time.Millisecond), kgo.ProducerBatchMaxBytes(bytesMax),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation(),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	offsets := make([]int64, len(asked.Records))
	failures := make(chan error, len(asked.Records))
	for index, wanted := range asked.Records {
		produced := &kgo.Record{
			Topic: asked.Topic, Partition: wanted.Partition, Key: wanted.Key, Value: wanted.Value,
			Timestamp: time.UnixMilli(wanted.TimestampMS),
		}
		for _, header := range wanted.Headers {
			produced.Headers = append(produced.Headers, kgo.RecordHeader{Key: header[0].(string), Value: headerValue(header)})
		}
		client.Produce(ctx, produced, func(stored *kgo.Record, err error) {
			offsets[index] = stored.Offset
			failures <- err
		})
	}
	sent(len(offsets))
	for range offsets {
		if err := <-failures; err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

func (f *franz) consume(ctx context.Context, asked asked) (any, error) {
	start := kgo.NewOffset().At(asked.Start)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap), kgo.FetchMaxBytes(bytesMax), kgo.FetchMaxPartitionBytes(bytesMax),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchIsolationLevel(isolation(asked)),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return take(ctx, client, asked.Count)
}

func isolation(asked asked) kgo.IsolationLevel {
	if asked.Isolation == "read_committed" {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

func take(ctx context.Context, client *kgo.Client, count int) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	received := []any{}
	for len(received) < count {
		fetches := client.PollRecords(ctx, count-len(received))
		if ctx.Err() != nil {
			return nil, tooFew(len(received), count)
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][]any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, header.Value})
			}
			received = append(received, []any{record.Offset, record.Value, record.Key, headers, record.Timestamp.UnixMilli()})
		})
	}
	return received, nil
}

func (f *franz) ends(ctx context.Context, asked asked) (any, error) {
	starts, err := f.admin.ListStartOffsets(ctx, asked.Topic)
	if err := errors.Join(err, starts.Error()); err != nil {
		return nil, err
	}
	ends, err := f.admin.ListEndOffsets(ctx, asked.Topic)
	start, _ := starts.Lookup(asked.Topic, asked.Partition)
	end, _ := ends.Lookup(asked.Topic, asked.Partition)
	return []int64{start.Offset, end.Offset}, errors.Join(err, ends.Error())
}

func (f *franz) offsetAt(ctx context.Context, asked asked) (any, error) {
	listed, err := f.admin.ListOffsetsAfterMilli(ctx, asked.TimestampMS, asked.Topic)
	found, _ := listed.Lookup(asked.Topic, asked.Partition)
	if found.Timestamp == -1 { // kadm puts the end of the log in the place of nothing
		return nil, errors.Join(err, listed.Error())
	}
	return found.Offset, errors.Join(err, listed.Error())
}

func (f *franz) listOffset(ctx context.Context, asked asked) (any, error) {
	list := map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		`"earliest"`:       f.admin.ListStartOffsets,
		`"latest"`:         f.admin.ListEndOffsets,
		`"max_timestamp"`:  f.admin.ListMaxTimestampOffsets,
		`"earliest_local"`: f.admin.ListLocalLogStartOffsets,
		`"latest_tiered"`:  f.admin.ListLatestRemoteOffsets,
	}[string(asked.Spec)]
	listed, err := list(ctx, asked.Topic)
	found, _ := listed.Lookup(asked.Topic, asked.Partition)
	return []int64{found.Offset, found.Timestamp}, errors.Join(err, listed.Error())
}

// --- topics --------------------------------------------------------------------------------------------------------

func (f *franz) deleteRecords(ctx context.Context, asked asked) (any, error) {
	var offsets kadm.Offsets
	offsets.AddOffset(asked.Topic, asked.Partition, asked.Offset, -1)
	answers, err := f.admin.DeleteRecords(ctx, offsets)
	answer, _ := answers.Lookup(asked.Topic, asked.Partition)
	return answer.LowWatermark, errors.Join(err, answers.Error())
}

func (f *franz) partitionCounts(ctx context.Context) (any, error) {
	topics, err := f.admin.ListTopics(ctx)
	counts := map[string]int{}
	for name, topic := range topics {
		counts[name] = len(topic.Partitions)
	}
	return counts, err
}

func (f *franz) settings(ctx context.Context, asked asked) (any, error) {
	described, err := f.admin.DescribeTopicConfigs(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	settings := map[string]*string{}
	for _, config := range described[0].Configs {
		settings[config.Key] = config.Value
	}
	return settings, described[0].Err
}

func (f *franz) alterSettings(ctx context.Context, asked asked) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range asked.Settings {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value}
		if value == nil {
			change.Op = kadm.DeleteConfig
		}
		changes = append(changes, change)
	}
	answers, err := f.admin.AlterTopicConfigs(ctx, changes, asked.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

// --- the cluster ---------------------------------------------------------------------------------------------------

func (f *franz) describeCluster(ctx context.Context) (any, error) {
	metadata, err := f.admin.BrokerMetadata(ctx)
	brokers := []string{}
	for _, broker := range metadata.Brokers {
		brokers = append(brokers, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	return map[string]any{"cluster_id": metadata.Cluster, "controller": metadata.Controller, "brokers": brokers}, err
}

func (f *franz) logSizes(ctx context.Context, asked asked) (any, error) {
	described, err := f.admin.DescribeAllLogDirs(ctx, nil)
	sizes := map[int32]int64{}
	described.Each(func(folder kadm.DescribedLogDir) {
		for _, partition := range folder.Topics[asked.Topic] {
			sizes[partition.Partition] = partition.Size
		}
	})
	return sizes, err
}

func (f *franz) producers(ctx context.Context, asked asked) (any, error) {
	topics := make(kadm.TopicsSet)
	topics.Add(asked.Topic, asked.Partition)
	described, err := f.admin.DescribeProducers(ctx, topics)
	found := [][]int64{}
	described.EachProducer(func(state kadm.DescribedProducer) {
		found = append(found, []int64{state.ProducerID, int64(state.ProducerEpoch), int64(state.LastSequence)})
	})
	return found, err
}

// --- groups --------------------------------------------------------------------------------------------------------

func (f *franz) commit(ctx context.Context, asked asked) (any, error) {
	var offsets kadm.Offsets
	for partition, committed := range parsed[map[string][]any](asked.Offsets) {
		offsets.Add(kadm.Offset{
			Topic: asked.Topic, Partition: number(partition), At: int64(committed[0].(float64)), LeaderEpoch: -1,
			Metadata: committed[1].(string),
		})
	}
	return nil, f.admin.CommitAllOffsets(ctx, asked.Group, offsets)
}

func (f *franz) committed(ctx context.Context, asked asked) (any, error) {
	fetched, err := f.admin.FetchOffsets(ctx, asked.Group)
	found := map[int32][]any{}
	for partition, offset := range fetched[asked.Topic] {
		found[partition] = []any{offset.At, offset.Metadata}
	}
	return found, errors.Join(err, fetched.Error())
}

func (f *franz) consumeInGroup(ctx context.Context, asked asked) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap), kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	received, err := take(ctx, client, asked.Count)
	if err != nil {
		return nil, err
	}
	return received, client.CommitUncommittedOffsets(ctx)
}

func (f *franz) describeGroup(ctx context.Context, asked asked) (any, error) {
	described, err := f.admin.DescribeGroups(ctx, asked.Group)
	if err := errors.Join(err, described.Error()); err != nil {
		return nil, err
	}
	group := described[asked.Group]
	members := map[string][][]any{}
	for _, member := range group.Members {
		members[member.ClientID] = [][]any{}
		if assignment, ok := member.Assigned.AsConsumer(); ok {
			for _, topic := range assignment.Topics {
				for _, partition := range topic.Partitions {
					members[member.ClientID] = append(members[member.ClientID], []any{topic.Topic, partition})
				}
			}
		}
	}
	return map[string]any{"state": group.State, "protocol": group.Protocol, "members": members}, nil
}

func groupOptions(bootstrap string, wanted membership) []kgo.Opt {
	balancer := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[wanted.Assignor]
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(wanted.Group), kgo.ConsumeTopics(wanted.Topics...),
		kgo.Balancers(balancer), kgo.ClientID(wanted.ClientID),
		kgo.SessionTimeout(time.Duration(wanted.SessionTimeoutMS) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
	if wanted.InstanceID != nil {
		options = append(options, kgo.InstanceID(*wanted.InstanceID))
	}
	return options
}

func (f *franz) beMember(ctx context.Context, wanted membership) error {
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			partitions := [][]any{}
			for topic, indexes := range topics {
				for _, index := range indexes {
					partitions = append(partitions, []any{topic, index})
				}
			}
			say(map[string]any{what: partitions})
		}
	}
	client, err := kgo.NewClient(append(
		groupOptions(f.bootstrap, wanted),
		kgo.OnPartitionsAssigned(tell("assigned")), kgo.OnPartitionsRevoked(tell("revoked")), kgo.OnPartitionsLost(tell("lost")),
	)...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		records := [][]any{}
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			records = append(records, []any{record.Topic, record.Partition, record.Offset, record.Value})
		})
		if len(records) > 0 {
			say(map[string]any{"records": records})
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				say(map[string]any{"not_committed": err.Error()})
			} else {
				say(map[string]any{"committed": len(records)})
			}
		}
		client.AllowRebalance()
	}
	return nil
}

func number(text string) int32 {
	value, err := strconv.ParseInt(text, 10, 32)
	must(err)
	return int32(value)
}
