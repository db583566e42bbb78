// What the Go clients can do, for the cases that all clients share.
//
// clientcases -bootstrap ADDRESS -client franz|segmentio: a line of JSON in, {"op": ..., arguments}, a line of JSON
// out: {"result": ...}, or {"refused": Kafka's error code, "message": ...}, or {"broken": true, "message": ...}. Bytes
// travel in Base64.
//
// clientcases ... member SETTINGS: a member of a group. It tells each assignment, revocation, batch of records and
// commit as a line of JSON, and leaves when its input ends.
//
// clientcases ... copy SETTINGS: copies one topic to another in transactions of a few records. It says {"open": the
// values} when all of a transaction is with the broker, commits when it is given a line, and says {"committed": count}.
// It goes on until it is killed.
//
// clientcases ... churn SETTINGS (franz): members that come and go, and what became of the records meanwhile.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"
)

const (
	patience = 30 * time.Second
	bytesMax = 32 << 20
)

// asked is one line of input: an operation and its arguments.
type asked struct {
	Op           string             `json:"op"`
	Topic        string             `json:"topic"`
	Partition    int32              `json:"partition"`
	Partitions   json.RawMessage    `json:"partitions"`
	Start        int64              `json:"start"`
	Count        int                `json:"count"`
	Offset       int64              `json:"offset"`
	TimestampMS  int64              `json:"timestamp_ms"`
	Spec         json.RawMessage    `json:"spec"`
	Config       map[string]*string `json:"config"`
	Settings     map[string]*string `json:"settings"`
	Group        string             `json:"group"`
	Offsets      json.RawMessage    `json:"offsets"`
	Acks         string             `json:"acks"`
	Compression  string             `json:"compression"`
	Idempotent   bool               `json:"idempotent"`
	Records      []record           `json:"records"`
	Asynchronous bool               `json:"asynchronous"`
	Isolation    string             `json:"isolation"`
	transactional
}

// transactional is what operations of a transaction are told besides.
type transactional struct {
	Producer        string `json:"producer"` // the name that the case gave it
	TransactionalID string `json:"transactional_id"`
	TimeoutMS       int    `json:"timeout_ms"`
	Value           []byte `json:"value"`
}

// copying is how one topic is to be copied to another.
type copying struct {
	Source           string `json:"source"`
	Target           string `json:"target"`
	Group            string `json:"group"`
	TransactionalID  string `json:"transactional_id"`
	TimeoutMS        int    `json:"timeout_ms"`
	SessionTimeoutMS int    `json:"session_timeout_ms"`
	Each             int    `json:"each"`
}

type record struct {
	Value       []byte  `json:"value"`
	Key         []byte  `json:"key"`
	Headers     [][]any `json:"headers"`
	TimestampMS int64   `json:"timestamp_ms"`
	Partition   int32   `json:"partition"`
}

// membership is how a member of a group is to behave.
type membership struct {
	Topics           []string `json:"topics"`
	Group            string   `json:"group"`
	Assignor         string   `json:"assignor"`
	InstanceID       *string  `json:"instance_id"`
	ClientID         string   `json:"client_id"`
	SessionTimeoutMS int      `json:"session_timeout_ms"`
}

// client is one of the libraries.
type client interface {
	carryOut(ctx context.Context, asked asked) (any, error)
	beMember(ctx context.Context, wanted membership) error
	copy(ctx context.Context, wanted copying) error
	// codeOf is Kafka's code of an error that came from the broker.
	codeOf(err error) (int, bool)
}

var (
	input  = bufio.NewReaderSize(os.Stdin, 1<<20)
	output sync.Mutex
)

func main() {
	bootstrap := flag.String("bootstrap", "", "the broker's address")
	name := flag.String("client", "franz", "franz or segmentio")
	flag.Parse()
	var library client
	switch *name {
	case "franz":
		library = newFranz(*bootstrap)
	case "segmentio":
		library = newSegmentio(*bootstrap)
	default:
		log.Fatalf("no such client: %s", *name)
	}
	switch flag.Arg(0) {
	case "":
		answerAll(library)
	case "member":
		var wanted membership
		must(json.Unmarshal([]byte(flag.Arg(1)), &wanted))
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, input)
			cancel()
		}()
		must(library.beMember(ctx, wanted))
		say(map[string]any{"closed": true})
	case "copy":
		var wanted copying
		must(json.Unmarshal([]byte(flag.Arg(1)), &wanted))
		must(library.copy(context.Background(), wanted))
	case "churn":
		var wanted churnSettings
		must(json.Unmarshal([]byte(flag.Arg(1)), &wanted))
		say(map[string]any{"result": churn(*bootstrap, wanted)})
	default:
		log.Fatalf("no such word: %s", flag.Arg(0))
	}
}

func answerAll(library client) {
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var wanted asked
		must(json.Unmarshal(line, &wanted))
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		result, err := library.carryOut(ctx, wanted)
		cancel()
		code, isRefused := library.codeOf(err)
		switch {
		case err == nil:
			say(map[string]any{"result": result})
		case isRefused:
			say(map[string]any{"refused": code, "message": err.Error()})
		default:
			say(map[string]any{"broken": true, "message": err.Error()})
		}
	}
}

// sent says that all records are handed over, and waits until the outcome is asked for.
func sent(count int) {
	say(map[string]any{"sent": count})
	_, _ = input.ReadBytes('\n')
}

// open says what is with the broker and not committed, and waits until it is to be committed.
func open(values [][]byte) {
	say(map[string]any{"open": values})
	_, _ = input.ReadBytes('\n')
}

func say(line map[string]any) {
	text, err := json.Marshal(line)
	must(err)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// parsed reads a part of the input whose shape depends on the operation.
func parsed[T any](raw json.RawMessage) T {
	var value T
	must(json.Unmarshal(raw, &value))
	return value
}

func headerValue(header []any) []byte {
	if header[1] == nil {
		return nil
	}
	var value []byte
	text, _ := json.Marshal(header[1])
	must(json.Unmarshal(text, &value))
	return value
}

func tooFew(received, count int) error {
	return fmt.Errorf("only %d of %d records came", received, count)
}
