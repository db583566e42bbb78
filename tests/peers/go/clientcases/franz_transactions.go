package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (f *franz) transact(ctx context.Context, asked asked) error {
	producer := f.writers[asked.Producer]
	switch asked.Op {
	case "txn_open":
		opened, err := kgo.NewClient(f.transactionalOptions(asked.TransactionalID, asked.TimeoutMS)...)
		if err != nil {
			return err
		}
		f.writers[asked.Producer] = opened
		_, _, err = opened.ProducerID(ctx) // it asks for one, which settles what is open
		return err
	case "txn_begin":
		return producer.BeginTransaction()
	case "txn_send":
		record := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Value: asked.Value}
		return producer.ProduceSync(ctx, record).FirstErr()
	case "txn_send_offset":
		return sendOffset(ctx, producer, asked)
	case "txn_commit":
		return producer.EndTransaction(ctx, kgo.TryCommit)
	case "txn_abort":
		return producer.EndTransaction(ctx, kgo.TryAbort)
	case "txn_close":
		producer.Close()
		delete(f.writers, asked.Producer)
		return nil
	}
	return fmt.Errorf("franz-go cannot %s", asked.Op)
}

func (f *franz) transactionalOptions(transactionalID string, timeoutMS int) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap), kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(time.Duration(timeoutMS) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryTimeout(patience),
	}
}

// sendOffset asks by itself: the library commits in a transaction what a member of a group has read, and nothing else.
// From version 5 on there is no AddOffsetsToTxn before it.
func sendOffset(ctx context.Context, producer *kgo.Client, asked asked) error {
	topics, err := kadm.NewClient(producer).ListTopics(ctx, asked.Topic)
	if err != nil {
		return err
	}
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Partition, partition.Offset = asked.Partition, asked.Offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = asked.Topic, topics[asked.Topic].ID
	topic.Partitions = append(topic.Partitions, partition)
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.Group, request.Generation = asked.TransactionalID, asked.Group, -1
	request.Topics = append(request.Topics, topic)
	if request.ProducerID, request.ProducerEpoch, err = producer.ProducerID(ctx); err != nil {
		return err
	}
	answer, err := request.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
}

func (f *franz) copy(ctx context.Context, wanted copying) error {
	session, err := kgo.NewGroupTransactSession(append(
		f.transactionalOptions(wanted.TransactionalID, wanted.TimeoutMS),
		kgo.ConsumerGroup(wanted.Group), kgo.ConsumeTopics(wanted.Source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.SessionTimeout(time.Duration(wanted.SessionTimeoutMS)*time.Millisecond), kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(ctx, wanted.Each)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.Empty() {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var values [][]byte
		var copies []*kgo.Record
		fetches.EachRecord(func(read *kgo.Record) {
			values = append(values, read.Value)
			copies = append(copies, &kgo.Record{Topic: wanted.Target, Partition: read.Partition, Key: read.Key, Value: read.Value})
		})
		if err := session.ProduceSync(ctx, copies...).FirstErr(); err != nil {
			return err
		}
		open(values)
		committed, err := session.End(ctx, kgo.TryCommit) // its offsets go just before the end
		if err != nil {
			return err
		}
		if !committed {
			return errors.New("it was not committed: the group has changed")
		}
		say(map[string]any{"committed": len(values)})
	}
}
