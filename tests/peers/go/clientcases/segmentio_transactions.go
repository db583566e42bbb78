package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// byHand is a transactional producer. kafka-go has none: its Client has the calls and its RawProduce takes batches as
// they are, so what marks a batch as part of a transaction is put into it here.
type byHand struct {
	transactionalID string
	session         *kafka.ProducerSession
	sequences       map[string]uint32
}

func (s *segmentio) transact(ctx context.Context, asked asked) error {
	producer := s.producers[asked.Producer]
	switch asked.Op {
	case "txn_open":
		opened, err := s.initialised(ctx, asked)
		s.producers[asked.Producer] = opened
		return err
	case "txn_begin":
		return nil
	case "txn_send":
		return s.sendInTransaction(ctx, producer, asked)
	case "txn_send_offset":
		return s.sendOffset(ctx, producer, asked)
	case "txn_commit":
		return s.end(ctx, producer, true)
	case "txn_abort":
		return s.end(ctx, producer, false)
	case "txn_close":
		delete(s.producers, asked.Producer)
		return nil
	}
	return fmt.Errorf("kafka-go cannot %s", asked.Op)
}

// again asks until nothing is under way that makes this one wait.
func again(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		isUnderWay := errors.Is(err, kafka.ConcurrentTransactions) || errors.Is(err, kafka.NotCoordinatorForGroup) ||
			errors.Is(err, kafka.GroupCoordinatorNotAvailable)
		if !isUnderWay || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *segmentio) initialised(ctx context.Context, asked asked) (*byHand, error) {
	producer := &byHand{transactionalID: asked.TransactionalID, sequences: map[string]uint32{}}
	err := again(ctx, func() error {
		answer, err := s.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: asked.TransactionalID, TransactionTimeoutMs: asked.TimeoutMS, ProducerID: -1, ProducerEpoch: -1,
		})
		if err != nil {
			return err
		}
		producer.session = answer.Producer
		return answer.Error
	})
	return producer, err
}

func (s *segmentio) sendInTransaction(ctx context.Context, producer *byHand, asked asked) error {
	err := again(ctx, func() error {
		answer, err := s.client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
			TransactionalID: producer.transactionalID,
			ProducerID:      producer.session.ProducerID, ProducerEpoch: producer.session.ProducerEpoch,
			Topics: map[string][]kafka.AddPartitionToTxn{asked.Topic: {{Partition: int(asked.Partition)}}},
		})
		if err != nil {
			return err
		}
		return answer.Topics[asked.Topic][0].Error
	})
	if err != nil {
		return err
	}
	place := fmt.Sprintf("%s %d", asked.Topic, asked.Partition)
	batch, err := producer.batch(asked.Value, producer.sequences[place])
	if err != nil {
		return err
	}
	answer, err := s.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic: asked.Topic, Partition: int(asked.Partition), RequiredAcks: kafka.RequireAll,
		TransactionalID: producer.transactionalID,
		RawRecords:      protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
	})
	if err != nil {
		return err
	}
	producer.sequences[place]++
	return answer.Error
}

// Where the fields of a batch are that the library leaves as they are without a transaction.
const (
	crcAt, attributesAt, producerIDAt, epochAt, sequenceAt = 17, 21, 43, 51, 53
	isTransactional                                        = 1 << 4
)

// batch is one record as a partition of a Produce request has it: a length, and a batch in the bytes of the log.
func (p *byHand) batch(value []byte, sequence uint32) ([]byte, error) {
	var encoded bytes.Buffer
	records := protocol.RecordSet{
		Version: 2,
		Records: protocol.NewRecordReader(protocol.Record{Time: time.Now(), Value: protocol.NewBytes(value)}),
	}
	if _, err := records.WriteTo(&encoded); err != nil {
		return nil, err
	}
	batch := encoded.Bytes()[4:]
	binary.BigEndian.PutUint16(batch[attributesAt:], isTransactional)
	binary.BigEndian.PutUint64(batch[producerIDAt:], uint64(p.session.ProducerID))
	binary.BigEndian.PutUint16(batch[epochAt:], uint16(p.session.ProducerEpoch))
	binary.BigEndian.PutUint32(batch[sequenceAt:], sequence)
	binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded.Bytes(), nil
}

func (s *segmentio) sendOffset(ctx context.Context, producer *byHand, asked asked) error {
	err := again(ctx, func() error {
		answer, err := s.client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
			TransactionalID: producer.transactionalID, GroupID: asked.Group,
			ProducerID: producer.session.ProducerID, ProducerEpoch: producer.session.ProducerEpoch,
		})
		if err != nil {
			return err
		}
		return answer.Error
	})
	if err != nil {
		return err
	}
	answer, err := s.client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
		TransactionalID: producer.transactionalID, GroupID: asked.Group, GenerationID: -1,
		ProducerID: producer.session.ProducerID, ProducerEpoch: producer.session.ProducerEpoch,
		Topics: map[string][]kafka.TxnOffsetCommit{asked.Topic: {{Partition: int(asked.Partition), Offset: asked.Offset}}},
	})
	if err != nil {
		return err
	}
	return answer.Topics[asked.Topic][0].Error
}

func (s *segmentio) end(ctx context.Context, producer *byHand, isCommit bool) error {
	return again(ctx, func() error {
		answer, err := s.client.EndTxn(ctx, &kafka.EndTxnRequest{
			TransactionalID: producer.transactionalID, Committed: isCommit,
			ProducerID: producer.session.ProducerID, ProducerEpoch: producer.session.ProducerEpoch,
		})
		if err != nil {
			return err
		}
		return answer.Error
	})
}

func (s *segmentio) copy(context.Context, copying) error {
	return errors.New("kafka-go has no transactional producer")
}
