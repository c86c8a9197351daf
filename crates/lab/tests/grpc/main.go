// A server and a client of gRPC with messages of plain bytes, for the tests of Evenkeel.
//
//	grpc serve ADDRESS
//	grpc client ADDRESS
//	grpc stream ADDRESS SECONDS COUNT
//	grpc status ADDRESS METHOD
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Codec of plain bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

const service = "evenkeel.Echo"

func main() {
	log.SetFlags(0)
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2])
	case "client":
		client(os.Args[2])
		fmt.Println("done")
	case "status":
		conn := dial(os.Args[2])
		_, err := call(conn, os.Args[3], "x")
		fmt.Printf("%v: %s\n", status.Code(err), status.Convert(err).Message())
	case "stream":
		seconds, _ := strconv.Atoi(os.Args[3])
		count, _ := strconv.Atoi(os.Args[4])
		stream(os.Args[2], time.Duration(seconds)*time.Second, count)
	}
}

// Server: the method decides what becomes of the messages.

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	check(err)
	server := grpc.NewServer(
		grpc.ForceServerCodec(raw{}),
		grpc.MaxRecvMsgSize(16<<20),
		grpc.UnknownServiceHandler(handle),
	)
	fmt.Println("ready")
	check(server.Serve(listener))
}

func handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	switch method {
	case "/evenkeel.Echo/Unary", "/evenkeel.Echo/Bidi":
		return echo(stream)
	case "/evenkeel.Echo/Metadata":
		return metadataBack(stream)
	case "/evenkeel.Echo/Count":
		return count(stream)
	case "/evenkeel.Echo/Repeat":
		return repeat(stream)
	case "/evenkeel.Echo/Wait":
		<-stream.Context().Done()
		fmt.Println("canceled:", stream.Context().Err())
		return stream.Context().Err()
	case "/evenkeel.Echo/Fail":
		return status.Error(codes.NotFound, "no such thing: 100 %")
	case "/grpc.health.v1.Health/Check":
		return health(stream)
	}
	return status.Error(codes.Unimplemented, method)
}

func echo(stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

func metadataBack(stream grpc.ServerStream) error {
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	stream.SetHeader(metadata.Pairs("x-head-bin", "\x00\xff\x01", "x-seen", first(incoming, "x-sent")))
	stream.SetTrailer(metadata.Pairs("x-tail", "tail", "x-tail-bin", "\x01\x00\xfe"))
	return echo(stream)
}

func count(stream grpc.ServerStream) error {
	messages, length := 0, 0
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			answer := []byte(fmt.Sprint(messages, " ", length))
			return stream.SendMsg(&answer)
		} else if err != nil {
			return err
		}
		messages++
		length += len(message)
	}
}

func repeat(stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	for number := 0; number < 1000; number++ {
		answer := []byte(strconv.Itoa(number))
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

// A service named "bad" does not serve, "none" is unknown.
func health(stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	answer := []byte{8, 1}
	switch {
	case bytes.HasSuffix(message, []byte("bad")):
		answer = []byte{8, 2}
	case bytes.HasSuffix(message, []byte("none")):
		return status.Error(codes.NotFound, "unknown service")
	}
	return stream.SendMsg(&answer)
}

// Client: each function is one test.

func client(address string) {
	conn := dial(address)
	defer conn.Close()
	unary(conn)
	large(conn)
	metadataPasses(conn)
	clientStreams(conn)
	serverStreams(conn)
	bidirectional(conn)
	fails(conn)
	deadline(conn)
	cancels(conn)
	many(conn)
}

func dial(address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(16<<20)))
	check(err)
	return conn
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func call(conn *grpc.ClientConn, method string, message string, options ...grpc.CallOption) (string, error) {
	ctx, cancel := limited()
	defer cancel()
	request, answer := []byte(message), []byte{}
	err := conn.Invoke(ctx, "/"+service+"/"+method, &request, &answer, options...)
	return string(answer), err
}

func unary(conn *grpc.ClientConn) {
	for number := 0; number < 100; number++ {
		answer, err := call(conn, "Unary", fmt.Sprint(number))
		check(err)
		expect(answer, fmt.Sprint(number))
	}
	answer, err := call(conn, "Unary", "")
	check(err)
	expect(answer, "")
}

func large(conn *grpc.ClientConn) {
	message := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	answer, err := call(conn, "Unary", message)
	check(err)
	if answer != message {
		log.Fatal("a large message changed")
	}
}

func metadataPasses(conn *grpc.ClientConn) {
	ctx, cancel := limited()
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-sent", "sent", "x-sent-bin", "\x00\x01\xff")
	var head, tail metadata.MD
	request, answer := []byte("m"), []byte{}
	check(conn.Invoke(ctx, "/"+service+"/Metadata", &request, &answer, grpc.Header(&head), grpc.Trailer(&tail)))
	expect(first(head, "x-seen"), "sent")
	expect(first(head, "x-head-bin"), "\x00\xff\x01")
	expect(first(tail, "x-tail"), "tail")
	expect(first(tail, "x-tail-bin"), "\x01\x00\xfe")
}

func open(ctx context.Context, conn *grpc.ClientConn, method string) grpc.ClientStream {
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, description, "/"+service+"/"+method)
	check(err)
	return stream
}

func clientStreams(conn *grpc.ClientConn) {
	ctx, cancel := limited()
	defer cancel()
	stream := open(ctx, conn, "Count")
	message := bytes.Repeat([]byte("x"), 1000)
	for number := 0; number < 1000; number++ {
		check(stream.SendMsg(&message))
	}
	check(stream.CloseSend())
	var answer []byte
	check(stream.RecvMsg(&answer))
	expect(string(answer), "1000 1000000")
	ends(stream)
}

func serverStreams(conn *grpc.ClientConn) {
	ctx, cancel := limited()
	defer cancel()
	stream := open(ctx, conn, "Repeat")
	message := []byte("go")
	check(stream.SendMsg(&message))
	check(stream.CloseSend())
	for number := 0; number < 1000; number++ {
		var answer []byte
		check(stream.RecvMsg(&answer))
		expect(string(answer), strconv.Itoa(number))
	}
	ends(stream)
}

// Each message is answered before the next one is sent.
func bidirectional(conn *grpc.ClientConn) {
	ctx, cancel := limited()
	defer cancel()
	stream := open(ctx, conn, "Bidi")
	for number := 0; number < 100; number++ {
		message := []byte(strconv.Itoa(number))
		check(stream.SendMsg(&message))
		var answer []byte
		check(stream.RecvMsg(&answer))
		expect(string(answer), strconv.Itoa(number))
	}
	check(stream.CloseSend())
	ends(stream)
}

func fails(conn *grpc.ClientConn) {
	_, err := call(conn, "Fail", "x")
	expect(status.Code(err).String(), "NotFound")
	expect(status.Convert(err).Message(), "no such thing: 100 %")
	_, err = call(conn, "Missing", "x")
	expect(status.Code(err).String(), "Unimplemented")
}

func deadline(conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	request, answer := []byte{}, []byte{}
	err := conn.Invoke(ctx, "/"+service+"/Wait", &request, &answer)
	expect(status.Code(err).String(), "DeadlineExceeded")
}

func cancels(conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(context.Background())
	stream := open(ctx, conn, "Bidi")
	message := []byte("x")
	check(stream.SendMsg(&message))
	check(stream.RecvMsg(&message))
	cancel()
	expect(status.Code(stream.RecvMsg(&message)).String(), "Canceled")
	unary(conn)
}

func many(conn *grpc.ClientConn) {
	var group sync.WaitGroup
	var all sync.WaitGroup
	all.Add(100)
	for number := 0; number < 100; number++ {
		group.Go(func() {
			ctx, cancel := limited()
			defer cancel()
			stream := open(ctx, conn, "Bidi")
			message := []byte(strconv.Itoa(number))
			check(stream.SendMsg(&message))
			var answer []byte
			check(stream.RecvMsg(&answer))
			// All streams are open now.
			all.Done()
			all.Wait()
			check(stream.SendMsg(&message))
			check(stream.RecvMsg(&answer))
			expect(string(answer), strconv.Itoa(number))
			check(stream.CloseSend())
			ends(stream)
		})
	}
	group.Wait()
}

// Streams messages for a time over streams that stay open, and reports how many were cut.
func stream(address string, limit time.Duration, count int) {
	conn := dial(address)
	defer conn.Close()
	var group sync.WaitGroup
	var lock sync.Mutex
	cut, messages := 0, 0
	for number := 0; number < count; number++ {
		group.Go(func() {
			sent, err := streamUntil(conn, limit)
			lock.Lock()
			defer lock.Unlock()
			messages += sent
			if err != nil {
				cut++
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	group.Wait()
	fmt.Println("cut", cut, "of", count, "messages", messages)
}

func streamUntil(conn *grpc.ClientConn, limit time.Duration) (int, error) {
	stream := open(context.Background(), conn, "Bidi")
	sent := 0
	for begin := time.Now(); time.Since(begin) < limit; sent++ {
		message := []byte("0123456789")
		if err := stream.SendMsg(&message); err != nil {
			return sent, stream.RecvMsg(&message)
		}
		if err := stream.RecvMsg(&message); err != nil {
			return sent, err
		}
		if sent == 0 {
			fmt.Println("open")
		}
		time.Sleep(5 * time.Millisecond)
	}
	var rest []byte
	if err := errors.Join(stream.CloseSend()); err != nil {
		return sent, err
	}
	if err := stream.RecvMsg(&rest); err != io.EOF {
		return sent, err
	}
	return sent, nil
}

func ends(stream grpc.ClientStream) {
	var rest []byte
	if err := stream.RecvMsg(&rest); err != io.EOF {
		log.Panic("no end: ", err)
	}
}

func first(values metadata.MD, name string) string {
	if found := values.Get(name); len(found) > 0 {
		return found[0]
	}
	return ""
}

func expect(value, expected string) {
	if value != expected {
		log.Panicf("%q instead of %q", value, expected)
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
