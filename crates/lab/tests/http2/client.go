// Client of the tests with Go: `client URL CA`. It prints "done", or fails.

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"

	"golang.org/x/net/http2"
)

const large = 5_000_000

var (
	url    = os.Args[1]
	client *http.Client
)

func check(condition bool, format string, arguments ...any) {
	if !condition {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func request(method, path string, body io.Reader) *http.Request {
	request, err := http.NewRequest(method, url+path, body)
	check(err == nil, "%v", err)
	return request
}

// Sends a request, and returns all of its response.
func ask(request *http.Request) (*http.Response, string) {
	response, err := client.Do(request)
	check(err == nil, "%v", err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err == nil, "%v", err)
	check(response.ProtoMajor == 2 && response.StatusCode == 200, "%v", response)
	return response, string(body)
}

func get(path string) string {
	_, body := ask(request("GET", path, nil))
	return body
}

func transport(ca string) http.RoundTripper {
	if strings.HasPrefix(url, "http:") {
		dial := func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		}
		return &http2.Transport{AllowHTTP: true, DialTLSContext: dial}
	}
	pem, err := os.ReadFile(ca)
	check(err == nil, "%v", err)
	roots := x509.NewCertPool()
	check(roots.AppendCertsFromPEM(pem), "no certificate in %s", ca)
	return &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
}

func uploads() {
	body := strings.Repeat("y", large)
	_, length := ask(request("POST", "/upload", strings.NewReader(body)))
	check(length == fmt.Sprint(large), "%s", length)
	_, length = ask(request("POST", "/upload", io.MultiReader(strings.NewReader(body))))
	check(length == fmt.Sprint(large), "%s", length)
	expecting := request("POST", "/upload", strings.NewReader(body))
	expecting.Header.Set("Expect", "100-continue")
	_, length = ask(expecting)
	check(length == fmt.Sprint(large), "%s", length)
}

func interim() {
	hints := ""
	trace := &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hints = fmt.Sprint(code, " ", header.Get("Link"))
			return nil
		},
	}
	asked := request("GET", "/hints", nil)
	_, body := ask(asked.WithContext(httptrace.WithClientTrace(asked.Context(), trace)))
	check(body == "/hints" && hints == "103 </a.css>; rel=preload", "%s %s", body, hints)
}

func trailers() {
	asked := request("POST", "/trailers", io.MultiReader(strings.NewReader("body")))
	asked.Trailer = http.Header{"X-Md": {"abc"}}
	response, body := ask(asked)
	check(body == "abc", "%s", body)
	seen := response.Trailer.Get("X-Seen")
	check(seen == "x-md=abc", "%s", seen)
}

func together() {
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { check(get("/together") == "together", "not together") })
	}
	all.Wait()
}

// The server sends the next event when the one before was received.
func events() {
	response, err := client.Do(request("GET", "/events", nil))
	check(err == nil, "%v", err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	count := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			count++
			get("/received")
		}
	}
	check(lines.Err() == nil && count == 3, "%d events", count)
}

func main() {
	client = &http.Client{Transport: transport(os.Args[2])}
	check(get("/get") == "/get", "another body")
	response, _ := ask(request("HEAD", "/head", nil))
	check(response.ContentLength == 1234, "%v", response)
	check(len(get("/large")) == large, "not all of it")
	cookies := request("GET", "/cookie", nil)
	cookies.Header.Set("Cookie", "a=1; b=2")
	_, cookie := ask(cookies)
	check(cookie == "a=1; b=2", "%s", cookie)
	uploads()
	interim()
	trailers()
	together()
	events()
	fmt.Println("done")
}
