package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio is segmentio/kafka-go: its Writer, Reader and ConsumerGroup, and its Client to administer.
type segmentio struct {
	bootstrap string
	address   net.Addr
	client    *kafka.Client // made anew for each call: its transport remembers topics for a while
	producers map[string]*byHand
}

func newSegmentio(bootstrap string) *segmentio {
	address, err := net.ResolveTCPAddr("tcp", bootstrap)
	must(err)
	return &segmentio{bootstrap: bootstrap, address: address, producers: map[string]*byHand{}}
}

func (s *segmentio) codeOf(err error) (int, bool) {
	var code kafka.Error
	if errors.As(err, &code) {
		return int(code), true
	}
	return 0, false
}

func (s *segmentio) carryOut(ctx context.Context, asked asked) (any, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	s.client = &kafka.Client{Addr: s.address, Timeout: patience, Transport: transport}
	switch asked.Op {
	case "produce":
		return s.produce(ctx, asked)
	case "consume":
		return s.consume(ctx, asked)
	case "ends":
		return s.ends(ctx, asked)
	case "offset_at":
		return s.offsetAt(ctx, asked)
	case "create_topic":
		return s.createTopic(ctx, asked)
	case "delete_topic":
		answer, err := s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{asked.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, answer.Errors[asked.Topic]
	case "partition_counts":
		metadata, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		counts := map[string]int{}
		for _, topic := range metadata.Topics {
			counts[topic.Name] = len(topic.Partitions)
		}
		return counts, nil
	case "settings":
		return s.settings(ctx, asked)
	case "alter_settings":
		return s.alterSettings(ctx, asked)
	case "create_partitions":
		answer, err := s.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
			Topics: []kafka.TopicPartitionsConfig{{Name: asked.Topic, Count: int32(asked.Count)}},
		})
		if err != nil {
			return nil, err
		}
		return nil, answer.Errors[asked.Topic]
	case "describe_cluster":
		return s.describeCluster(ctx)
	case "commit", "alter_group_offsets":
		return s.commit(ctx, asked)
	case "committed":
		return s.committed(ctx, asked)
	case "consume_in_group":
		return s.consumeInGroup(ctx, asked)
	case "delete_group_offsets":
		return s.deleteGroupOffsets(ctx, asked)
	case "groups":
		listed, err := s.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		states := map[string]string{}
		for _, group := range listed.Groups {
			states[group.GroupID] = ""
		}
		return states, listed.Error
	case "describe_group":
		return s.describeGroup(ctx, asked)
	case "delete_group":
		answer, err := s.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{asked.Group}})
		if err != nil {
			return nil, err
		}
		return nil, answer.Errors[asked.Group]
	}
	return nil, s.transact(ctx, asked)
}

// --- records -------------------------------------------------------------------------------------------------------

// place is the partition that a record is meant for, and its place among the records of the call.
type place struct {
	partition int
	index     int
}

type asPlaced struct{}

func (asPlaced) Balance(message kafka.Message, _ ...int) int {
	return message.WriterData.(place).partition
}

func (s *segmentio) produce(ctx context.Context, asked asked) (any, error) {
	var outcome sync.Mutex
	offsets := make([]int64, len(asked.Records))
	writer := &kafka.Writer{
		Addr: s.address, Transport: s.client.Transport, Topic: asked.Topic, Balancer: asPlaced{}, BatchTimeout: 20 * time.Millisecond,
		BatchBytes: bytesMax, AllowAutoTopicCreation: true, WriteTimeout: patience,
		RequiredAcks: map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}[asked.Acks],
		Compression: map[string]kafka.Compression{
			"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
		}[asked.Compression],
		Completion: func(messages []kafka.Message, _ error) {
			outcome.Lock()
			defer outcome.Unlock()
			for _, message := range messages {
				offsets[message.WriterData.(place).index] = message.Offset
			}
		},
	}
	var messages []kafka.Message
	for index, wanted := range asked.Records {
		message := kafka.Message{
			Key: wanted.Key, Value: wanted.Value, Time: time.UnixMilli(wanted.TimestampMS),
			WriterData: place{int(wanted.Partition), index},
		}
		for _, header := range wanted.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header[0].(string), Value: headerValue(header)})
		}
		messages = append(messages, message)
	}
	done := make(chan error, 1)
	go func() {
		err := writer.WriteMessages(ctx, messages...)
		for attempt := 0; attempt < 20 && errors.Is(err, kafka.UnknownTopicOrPartition); attempt++ {
			time.Sleep(100 * time.Millisecond) // the topic is being made; kafka-go leaves it to its user to try again
			err = writer.WriteMessages(ctx, messages...)
		}
		done <- err
	}()
	sent(len(messages))
	err := <-done
	err = errors.Join(err, writer.Close())
	outcome.Lock()
	defer outcome.Unlock()
	return offsets, err
}

func (s *segmentio) consume(ctx context.Context, asked asked) (any, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.bootstrap}, Topic: asked.Topic, Partition: int(asked.Partition),
		MinBytes: 1, MaxBytes: bytesMax, OffsetOutOfRangeError: true, MaxWait: time.Second,
		IsolationLevel: map[string]kafka.IsolationLevel{"read_committed": kafka.ReadCommitted}[asked.Isolation],
	})
	defer reader.Close()
	if err := reader.SetOffset(asked.Start); err != nil {
		return nil, err
	}
	return read(ctx, reader, asked.Count)
}

func read(ctx context.Context, reader *kafka.Reader, count int) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	received := []any{}
	for len(received) < count {
		message, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil {
			return nil, tooFew(len(received), count)
		}
		if err != nil {
			return nil, err
		}
		headers := [][]any{}
		for _, header := range message.Headers {
			headers = append(headers, []any{header.Key, header.Value})
		}
		received = append(received, []any{message.Offset, message.Value, message.Key, headers, message.Time.UnixMilli()})
	}
	return received, nil
}

func (s *segmentio) listed(ctx context.Context, topic string, requests ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	answer, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := answer.Topics[topic][0]
	return found, found.Error
}

func (s *segmentio) ends(ctx context.Context, asked asked) (any, error) {
	partition := int(asked.Partition)
	found, err := s.listed(ctx, asked.Topic, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return []int64{found.FirstOffset, found.LastOffset}, err
}

func (s *segmentio) offsetAt(ctx context.Context, asked asked) (any, error) {
	found, err := s.listed(ctx, asked.Topic, kafka.TimeOffsetOf(int(asked.Partition), time.UnixMilli(asked.TimestampMS)))
	for offset := range found.Offsets {
		if offset >= 0 {
			return offset, err
		}
	}
	return nil, err
}

// --- topics --------------------------------------------------------------------------------------------------------

func (s *segmentio) createTopic(ctx context.Context, asked asked) (any, error) {
	topic := kafka.TopicConfig{Topic: asked.Topic, NumPartitions: parsed[int](asked.Partitions), ReplicationFactor: 1}
	for name, value := range asked.Config {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: *value})
	}
	answer, err := s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[asked.Topic]
}

func (s *segmentio) settings(ctx context.Context, asked asked) (any, error) {
	answer, err := s.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: asked.Topic}},
	})
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		settings[entry.ConfigName] = entry.ConfigValue
	}
	return settings, answer.Resources[0].Error
}

func (s *segmentio) alterSettings(ctx context.Context, asked asked) (any, error) {
	var changes []kafka.IncrementalAlterConfigsRequestConfig
	for name, value := range asked.Settings {
		change := kafka.IncrementalAlterConfigsRequestConfig{Name: name, ConfigOperation: kafka.ConfigOperationDelete}
		if value != nil {
			change.Value, change.ConfigOperation = *value, kafka.ConfigOperationSet
		}
		changes = append(changes, change)
	}
	answer, err := s.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: asked.Topic, Configs: changes},
		},
	})
	if err != nil {
		return nil, err
	}
	return nil, answer.Resources[0].Error
}

func (s *segmentio) describeCluster(ctx context.Context) (any, error) {
	metadata, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	brokers := []string{}
	for _, broker := range metadata.Brokers {
		brokers = append(brokers, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	return map[string]any{
		"cluster_id": metadata.ClusterID, "controller": metadata.Controller.ID, "brokers": brokers,
	}, nil
}

// --- groups --------------------------------------------------------------------------------------------------------

func (s *segmentio) commit(ctx context.Context, asked asked) (any, error) {
	var offsets []kafka.OffsetCommit
	for partition, value := range parsed[map[string]any](asked.Offsets) {
		commit := kafka.OffsetCommit{Partition: int(number(partition))}
		switch committed := value.(type) {
		case float64:
			commit.Offset = int64(committed)
		case []any:
			commit.Offset, commit.Metadata = int64(committed[0].(float64)), committed[1].(string)
		}
		offsets = append(offsets, commit)
	}
	answer, err := s.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: asked.Group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{asked.Topic: offsets},
	})
	if err != nil {
		return nil, err
	}
	for _, partition := range answer.Topics[asked.Topic] {
		err = errors.Join(err, partition.Error)
	}
	return nil, err
}

func (s *segmentio) committed(ctx context.Context, asked asked) (any, error) {
	answer, err := s.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: asked.Group})
	if err != nil {
		return nil, err
	}
	found := map[int][]any{}
	for _, partition := range answer.Topics[asked.Topic] {
		found[partition.Partition] = []any{partition.CommittedOffset, partition.Metadata}
	}
	return found, answer.Error
}

func (s *segmentio) consumeInGroup(ctx context.Context, asked asked) (any, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.bootstrap}, GroupID: asked.Group, Topic: asked.Topic, StartOffset: kafka.FirstOffset,
		MinBytes: 1, MaxBytes: bytesMax, MaxWait: time.Second,
	})
	received, err := read(ctx, reader, asked.Count) // ReadMessage commits what it hands out
	return received, errors.Join(err, reader.Close())
}

func (s *segmentio) deleteGroupOffsets(ctx context.Context, asked asked) (any, error) {
	answer, err := s.client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{
		GroupID: asked.Group, Topics: map[string][]int{asked.Topic: parsed[[]int](asked.Partitions)},
	})
	if err != nil {
		return nil, err
	}
	err = answer.Error
	for _, partition := range answer.Topics[asked.Topic] {
		err = errors.Join(err, partition.Error)
	}
	return nil, err
}

func (s *segmentio) describeGroup(ctx context.Context, asked asked) (any, error) {
	answer, err := s.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{asked.Group}})
	if err != nil {
		return nil, err
	}
	group := answer.Groups[0]
	members := map[string][][]any{}
	for _, member := range group.Members {
		members[member.ClientID] = [][]any{}
		for _, topic := range member.MemberAssignments.Topics {
			for _, partition := range topic.Partitions {
				members[member.ClientID] = append(members[member.ClientID], []any{topic.Topic, partition})
			}
		}
	}
	return map[string]any{"state": group.GroupState, "protocol": nil, "members": members}, group.Error
}

// beMember uses the ConsumerGroup on which kafka-go's Reader stands, since a Reader does not tell what it was assigned.
func (s *segmentio) beMember(ctx context.Context, wanted membership) error {
	balancer := map[string]kafka.GroupBalancer{
		"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
	}[wanted.Assignor]
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: wanted.Group, Brokers: []string{s.bootstrap}, Topics: wanted.Topics, GroupBalancers: []kafka.GroupBalancer{balancer},
		Dialer:            &kafka.Dialer{ClientID: wanted.ClientID, Timeout: patience},
		HeartbeatInterval: 500 * time.Millisecond, StartOffset: kafka.FirstOffset,
		SessionTimeout: time.Duration(wanted.SessionTimeoutMS) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer group.Close()
	for {
		generation, err := group.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			say(map[string]any{"broken": err.Error()})
			continue
		}
		partitions := [][]any{}
		for topic, assignments := range generation.Assignments {
			for _, assignment := range assignments {
				partitions = append(partitions, []any{topic, assignment.ID})
			}
		}
		say(map[string]any{"assigned": partitions})
		for topic, assignments := range generation.Assignments {
			for _, assignment := range assignments {
				generation.Start(func(ctx context.Context) { s.follow(ctx, generation, topic, assignment) })
			}
		}
		generation.Start(func(ctx context.Context) {
			<-ctx.Done()
			say(map[string]any{"revoked": partitions})
		})
	}
}

// follow reads and commits a partition until its generation ends.
func (s *segmentio) follow(ctx context.Context, generation *kafka.Generation, topic string, assignment kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.bootstrap}, Topic: topic, Partition: assignment.ID, MinBytes: 1, MaxBytes: bytesMax,
		MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	must(reader.SetOffset(assignment.Offset))
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		say(map[string]any{"records": [][]any{{topic, assignment.ID, message.Offset, message.Value}}})
		if err := generation.CommitOffsets(map[string]map[int]int64{topic: {assignment.ID: message.Offset + 1}}); err != nil {
			say(map[string]any{"not_committed": err.Error()})
			return
		}
		say(map[string]any{"committed": 1})
	}
}
