// Passes each request to the server at the second port.
package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	server, err := url.Parse("http://127.0.0.1:" + os.Args[2])
	if err != nil {
		panic(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	front := &http.Server{
		Addr:        "127.0.0.1:" + os.Args[1],
		Handler:     proxy,
		ErrorLog:    proxy.ErrorLog,
		ReadTimeout: time.Second,
		IdleTimeout: time.Second,
	}
	front.ListenAndServe()
}
