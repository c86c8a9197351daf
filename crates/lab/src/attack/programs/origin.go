// Records each complete request as a line of JSON, and answers with its target.
package main

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
)

type record struct {
	Method string   `json:"method"`
	Target string   `json:"target"`
	Host   string   `json:"host"`
	Body   string   `json:"body"`
	Fields []string `json:"fields"`
}

func main() {
	file, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	answer := func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		fields := []string{}
		for name, values := range request.Header {
			for _, value := range values {
				fields = append(fields, name, value)
			}
		}
		line, _ := json.Marshal(record{
			request.Method, request.RequestURI, request.Host, hex.EncodeToString(body), fields,
		})
		lock.Lock()
		file.Write(append(line, '\n'))
		lock.Unlock()
		writer.Header().Set("Content-Length", strconv.Itoa(len(request.RequestURI)))
		io.WriteString(writer, request.RequestURI)
	}
	http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(answer))
}
