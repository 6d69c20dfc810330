// The load of the gateway's benchmark, and the backend behind it. Only the standard library.
//
//	load backend TLS_ADDRESS PLAIN_ADDRESS          echoes, with TLS at the first address and without at the second
//	load tls      ADDRESS SECONDS CONCURRENCY       connect, handshake, echo 16 bytes, close
//	load raw      ADDRESS SECONDS CONCURRENCY       the same without TLS, after a hello that names a backend
//	load request  ADDRESS SECONDS CONCURRENCY       1 KiB there and back, over and over, on kept connections
//	load bulk     ADDRESS MEGABYTES                 so much there and back on one connection
//	load idle     ADDRESS COUNT [NAME]              opens connections, says so, and holds them until its input ends
//
// Each prints one JSON object. A connection that fails is counted and ends the run with status 1 if it is one in a
// hundred: a fast gateway that drops connections is not fast.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

// Where the gateway leads to the backend with TLS, and to the one without.
const (
	name  = "api.bench.test"
	plain = "raw.bench.test"
)

func main() {
	if len(os.Args) < 4 {
		fail("usage: load backend|tls|raw|request|bulk|idle ADDRESS ARGUMENTS; see the head of main.go")
	}
	address := os.Args[2]
	switch os.Args[1] {
	case "backend":
		backend(address, os.Args[3])
	case "tls":
		repeat(func() error { return once(address, true) })
	case "raw":
		repeat(func() error { return once(address, false) })
	case "request":
		requests(address)
	case "bulk":
		bulk(address, number(3))
	case "idle":
		idle(address, number(3))
	default:
		fail("no such load: " + os.Args[1])
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "load: "+text)
	os.Exit(1)
}

func number(at int) int {
	if at >= len(os.Args) {
		fail("an argument is missing; see the head of main.go")
	}
	value, err := strconv.Atoi(os.Args[at])
	if err != nil {
		fail(err.Error())
	}
	return value
}

func say(result any) {
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err.Error())
	}
}

func backend(secured, bare string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fail(err.Error())
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		fail(err.Error())
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	go serve(secured, func(connection net.Conn) net.Conn { return tls.Server(connection, config) })
	serve(bare, func(connection net.Conn) net.Conn { return connection })
}

func serve(address string, wrap func(net.Conn) net.Conn) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err.Error())
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			fail(err.Error())
		}
		go echo(wrap(connection))
	}
}

// A small buffer for a start: thousands of idle connections are held here too.
func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 2048)
	for {
		count, err := connection.Read(buffer)
		if count > 0 {
			if _, err := connection.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if count == len(buffer) && count < 256<<10 {
			buffer = make([]byte, 256<<10)
		}
	}
}

var client = &tls.Config{ServerName: name, InsecureSkipVerify: true}

func dial(address string) (net.Conn, error) {
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return connection, connection.SetDeadline(time.Now().Add(60 * time.Second))
}

func exchange(connection net.Conn, there, back []byte) error {
	if _, err := connection.Write(there); err != nil {
		return err
	}
	_, err := io.ReadFull(connection, back)
	return err
}

// One connection: opened, used once and closed in order.
func once(address string, secured bool) error {
	connection, err := dial(address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if secured {
		wrapped := tls.Client(connection, client)
		if err := exchange(wrapped, make([]byte, 16), make([]byte, 16)); err != nil {
			return err
		}
		if err := wrapped.CloseWrite(); err != nil {
			return err
		}
	} else {
		if err := exchange(connection, hello(plain), make([]byte, len(hello(plain)))); err != nil {
			return err
		}
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, connection)
	return err
}

// A hello that names a backend and nothing else: what a gateway needs to route, and an echo can send back.
func hello(name string) []byte {
	sized := func(bytes []byte) []byte { return append([]byte{byte(len(bytes) >> 8), byte(len(bytes))}, bytes...) }
	server := append([]byte{0}, sized([]byte(name))...)
	extensions := append([]byte{0, 0}, sized(sized(server))...)
	extensions = append(extensions, 0, 0x2b, 0, 3, 2, 3, 4)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = append(body, sized(extensions)...)
	handshake := append([]byte{1, 0}, sized(body)...)
	return append([]byte{0x16, 3, 1}, sized(handshake)...)
}

type outcome struct {
	Done   int     `json:"done"`
	Failed int     `json:"failed"`
	Rate   float64 `json:"rate"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p999"`
}

// Does something over and over for a time, several at once.
func repeat(work func() error) {
	deadline := time.Now().Add(time.Duration(number(3)) * time.Second)
	began := time.Now()
	var lock sync.Mutex
	var all []time.Duration
	var result outcome
	var group sync.WaitGroup
	for range number(4) {
		group.Go(func() {
			var own []time.Duration
			failed := 0
			for time.Now().Before(deadline) {
				start := time.Now()
				if err := work(); err != nil {
					failed++
					if failed == 1 {
						fmt.Fprintln(os.Stderr, "load:", err)
					}
					continue
				}
				own = append(own, time.Since(start))
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, own...)
			result.Failed += failed
		})
	}
	group.Wait()
	finish(all, result, time.Since(began))
}

func finish(all []time.Duration, result outcome, taken time.Duration) {
	if len(all) == 0 {
		fail("nothing got through")
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	at := func(part float64) float64 {
		return float64(all[min(len(all)-1, int(part*float64(len(all))))].Microseconds())
	}
	result.Done, result.Rate = len(all), float64(len(all))/taken.Seconds()
	result.P50, result.P99, result.P999 = at(0.5), at(0.99), at(0.999)
	say(result)
	if result.Failed*100 > result.Done {
		fail(fmt.Sprintf("%d of %d failed", result.Failed, result.Failed+result.Done))
	}
}

// A connection that is open and routed.
func opened(address, name string) (net.Conn, error) {
	connection, err := dial(address)
	if err != nil {
		return nil, err
	}
	return connection, exchange(connection, hello(name), make([]byte, len(hello(name))))
}

func requests(address string) {
	kept := make(chan net.Conn, number(4))
	there := make([]byte, 1024)
	repeat(func() error {
		var connection net.Conn
		select {
		case connection = <-kept:
		default:
			var err error
			if connection, err = opened(address, plain); err != nil {
				return err
			}
		}
		if err := exchange(connection, there, make([]byte, len(there))); err != nil {
			connection.Close()
			return err
		}
		kept <- connection
		return nil
	})
}

func bulk(address string, megabytes int) {
	connection, err := opened(address, plain)
	if err != nil {
		fail(err.Error())
	}
	began := time.Now()
	size := int64(megabytes) * 1_000_000
	go func() {
		piece := make([]byte, 256<<10)
		for left := size; left > 0; left -= int64(len(piece)) {
			if _, err := connection.Write(piece[:min(left, int64(len(piece)))]); err != nil {
				fail(err.Error())
			}
		}
	}()
	buffer := make([]byte, 256<<10)
	for left := size; left > 0; {
		count, err := connection.Read(buffer)
		if err != nil {
			fail(err.Error())
		}
		left -= int64(count)
	}
	// There and back: each byte passed the gateway twice.
	say(map[string]float64{"gigabytes": 2 * float64(size) / 1e9, "seconds": time.Since(began).Seconds()})
}

func idle(address string, count int) {
	name := plain
	if len(os.Args) > 4 {
		name = os.Args[4]
	}
	held := make([]net.Conn, 0, count)
	for range count {
		connection, err := opened(address, name)
		if err != nil {
			fail(fmt.Sprintf("after %d connections: %v", len(held), err))
		}
		if err := connection.SetDeadline(time.Time{}); err != nil {
			fail(err.Error())
		}
		held = append(held, connection)
	}
	say(map[string]int{"open": len(held)})
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, connection := range held {
		connection.Close()
	}
}
