package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// churnSettings say how many come and go for how long. At the end all members stay, and the group must settle.
type churnSettings struct {
	Topic              string `json:"topic"`
	Group              string `json:"group"`
	Assignor           string `json:"assignor"`
	Partitions         int    `json:"partitions"`
	Members            int    `json:"members"`
	Seconds            int    `json:"seconds"`
	SessionTimeoutMS   int    `json:"session_timeout_ms"`
	RebalanceTimeoutMS int    `json:"rebalance_timeout_ms"`
	Seed               uint64 `json:"seed"`
}

// churnResult is what came of it. A record counts as consumed by the member whose commit of it was acknowledged.
type churnResult struct {
	Produced       int      `json:"produced"`
	Joins          int64    `json:"joins"`
	Leaves         int64    `json:"leaves"`
	Deaths         int64    `json:"deaths"`
	RefusedCommits int64    `json:"refused_commits"`
	HasSettled     bool     `json:"has_settled"`
	SettledAfterMS int64    `json:"settled_after_ms"`
	NotOnce        []string `json:"not_once"`       // records that were not consumed exactly once, at most twenty
	NotOwnedOnce   []string `json:"not_owned_once"` // partitions that do not have one owner
	State          string   `json:"state"`          // of the group, as the broker tells it
	Members        int      `json:"members"`        // that the broker knows of
	AssignedOnce   int      `json:"assigned_once"`  // partitions that the broker knows one owner of
}

// fleet is the group, as its members see it.
type fleet struct {
	bootstrap string
	settings  churnSettings

	mutex    sync.Mutex
	consumed map[uint64]int
	owned    map[string]map[int32]bool

	joins, leaves, deaths, refusedCommits atomic.Int64
}

func churn(bootstrap string, settings churnSettings) churnResult {
	group := &fleet{
		bootstrap: bootstrap, settings: settings, consumed: map[uint64]int{}, owned: map[string]map[int32]bool{},
	}
	ctx, stop := context.WithCancel(context.Background())
	produced := make(chan int)
	producing, stopProducing := context.WithCancel(ctx)
	go func() { produced <- group.produce(producing) }()

	churning, stopChurning := context.WithTimeout(ctx, time.Duration(settings.Seconds)*time.Second)
	defer stopChurning()
	var coming, staying sync.WaitGroup
	for slot := range settings.Members {
		coming.Go(func() { group.comeAndGo(churning, slot) })
	}
	<-churning.Done()

	began := time.Now()
	for slot := range settings.Members {
		staying.Go(func() { group.live(ctx, fmt.Sprintf("stays-%d", slot), false) })
	}
	stopProducing()
	result := churnResult{Produced: <-produced}
	coming.Wait()
	limit := 3 * time.Duration(settings.RebalanceTimeoutMS) * time.Millisecond // slower than promised is told, not hung
	for time.Since(began) < limit && !result.HasSettled {
		time.Sleep(20 * time.Millisecond)
		result.HasSettled = group.isSettled(result.Produced)
	}
	result.SettledAfterMS = time.Since(began).Milliseconds()
	group.tell(&result)
	must(group.ask(ctx, &result))
	stop()
	staying.Wait()
	return result
}

// produce sends numbered records to partitions in turn until it is told to stop, and says how many.
func (g *fleet) produce(ctx context.Context) int {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(g.bootstrap), kgo.DefaultProduceTopic(g.settings.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
	)
	must(err)
	defer client.Close()
	number := 0
	for ; ctx.Err() == nil; number++ {
		value := binary.BigEndian.AppendUint64(nil, uint64(number))
		client.Produce(context.Background(), &kgo.Record{Value: value, Partition: int32(number % g.settings.Partitions)},
			func(_ *kgo.Record, err error) { must(err) })
		time.Sleep(2 * time.Millisecond)
	}
	must(client.Flush(context.Background()))
	return number
}

// comeAndGo is one place in the group, taken by one member after the other. One in four dies without a word.
func (g *fleet) comeAndGo(ctx context.Context, slot int) {
	chance := rand.New(rand.NewPCG(g.settings.Seed, uint64(slot)))
	for life := 0; ctx.Err() == nil; life++ {
		if !rest(ctx, time.Duration(chance.IntN(1500))*time.Millisecond) {
			return
		}
		stays, cancel := context.WithTimeout(ctx, time.Duration(500+chance.IntN(4000))*time.Millisecond)
		g.live(stays, fmt.Sprintf("comes-%d-%d", slot, life), chance.IntN(4) == 0)
		cancel()
	}
}

// live joins, consumes and commits until the context ends; then leaves, or dies: its connections are cut for good.
func (g *fleet) live(ctx context.Context, name string, dies bool) {
	wire := &cuttable{}
	var pending []*kgo.Record
	settle := func(client *kgo.Client) { // commits what was polled; what is acknowledged counts
		if len(pending) == 0 {
			return
		}
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			g.refusedCommits.Add(1)
			return
		}
		g.count(pending)
		pending = nil
	}
	given := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { g.own(name, topics, true) }
	taken := func(_ context.Context, client *kgo.Client, topics map[string][]int32) {
		settle(client)
		pending = without(pending, topics)
		g.own(name, topics, false)
	}
	lost := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		pending = without(pending, topics)
		g.own(name, topics, false)
	}
	client, err := kgo.NewClient(append(
		groupOptions(g.bootstrap, membership{
			Topics: []string{g.settings.Topic}, Group: g.settings.Group, Assignor: g.settings.Assignor, ClientID: name,
			SessionTimeoutMS: g.settings.SessionTimeoutMS,
		}),
		kgo.RebalanceTimeout(time.Duration(g.settings.RebalanceTimeoutMS)*time.Millisecond), kgo.Dialer(wire.dial),
		kgo.OnPartitionsAssigned(given), kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(lost),
	)...)
	must(err)
	g.joins.Add(1)
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) { pending = append(pending, record) })
		settle(client)
		client.AllowRebalance()
	}
	if dies {
		g.deaths.Add(1)
		wire.cut()
		g.forget(name)
		go client.CloseAllowingRebalance() // it cannot say goodbye; how long it tries does not matter
		return
	}
	g.leaves.Add(1)
	client.CloseAllowingRebalance()
	g.forget(name)
}

func without(records []*kgo.Record, topics map[string][]int32) []*kgo.Record {
	var kept []*kgo.Record
	for _, record := range records {
		isGone := false
		for _, partition := range topics[record.Topic] {
			isGone = isGone || partition == record.Partition
		}
		if !isGone {
			kept = append(kept, record)
		}
	}
	return kept
}

func (g *fleet) count(records []*kgo.Record) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, record := range records {
		g.consumed[binary.BigEndian.Uint64(record.Value)]++
	}
}

func (g *fleet) own(name string, topics map[string][]int32, isGiven bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.owned[name] == nil && isGiven {
		g.owned[name] = map[int32]bool{}
	}
	for _, partition := range topics[g.settings.Topic] {
		if isGiven {
			g.owned[name][partition] = true
		} else {
			delete(g.owned[name], partition)
		}
	}
}

func (g *fleet) forget(name string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.owned, name)
}

// isSettled: every partition has one owner, nobody has more than a share, and every record is consumed.
func (g *fleet) isSettled(produced int) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	share := (g.settings.Partitions + g.settings.Members - 1) / g.settings.Members
	for _, partitions := range g.owned {
		if len(partitions) > share {
			return false
		}
	}
	return len(g.notOwnedOnce()) == 0 && len(g.consumed) >= produced
}

func (g *fleet) notOwnedOnce() []string {
	owners := map[int32]int{}
	for _, partitions := range g.owned {
		for partition := range partitions {
			owners[partition]++
		}
	}
	wrong := []string{}
	for partition := range g.settings.Partitions {
		if count := owners[int32(partition)]; count != 1 {
			wrong = append(wrong, fmt.Sprintf("partition %d: %d owners", partition, count))
		}
	}
	return wrong
}

// tell fills in what the members know.
func (g *fleet) tell(result *churnResult) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	result.NotOwnedOnce, result.NotOnce = g.notOwnedOnce(), []string{}
	for number := range result.Produced {
		if times := g.consumed[uint64(number)]; times != 1 && len(result.NotOnce) < 20 {
			result.NotOnce = append(result.NotOnce, fmt.Sprintf("record %d: %d times", number, times))
		}
	}
	result.Joins, result.Leaves, result.Deaths = g.joins.Load(), g.leaves.Load(), g.deaths.Load()
	result.RefusedCommits = g.refusedCommits.Load()
}

// ask fills in what the broker knows.
func (g *fleet) ask(ctx context.Context, result *churnResult) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(g.bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	described, err := kadm.NewClient(client).DescribeGroups(ctx, g.settings.Group)
	if err != nil {
		return err
	}
	group := described[g.settings.Group]
	result.State, result.Members = group.State, len(group.Members)
	owners := map[int32]int{}
	for _, member := range group.Members {
		if assignment, ok := member.Assigned.AsConsumer(); ok {
			for _, topic := range assignment.Topics {
				for _, partition := range topic.Partitions {
					owners[partition]++
				}
			}
		}
	}
	for _, count := range owners {
		if count == 1 {
			result.AssignedOnce++
		}
	}
	return group.Err
}

func rest(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

// cuttable is a network that can be cut.
type cuttable struct {
	mutex sync.Mutex
	conns []net.Conn
	isCut bool
}

func (c *cuttable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isCut {
		_ = conn.Close()
		return nil, errors.New("cut")
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cuttable) cut() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
