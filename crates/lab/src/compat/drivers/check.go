package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const limit = 30 * time.Second

// On a machine that has other work too.
const atOnce = 2 * time.Second

// Arguments: host, port, port of a pool of two server connections.
var host, port, smallPort = os.Args[1], os.Args[2], os.Args[3]

// failure ends a check, as a panic.
type failure string

// check runs a function and prints its verdict: a line of four columns. Its result is a value to be
// compared, or nil.
func check(name string, body func() any) {
	type result struct {
		verdict string
		value   any
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- result{"failed", cause}
			}
		}()
		done <- result{"passed", body()}
	}()
	found := result{"failed", fmt.Sprintf("no end within %v", limit)}
	select {
	case found = <-done:
	case <-time.After(limit):
	}
	words := ""
	if found.value != nil {
		words = strings.Join(strings.Fields(fmt.Sprint(found.value)), " ")
	}
	fmt.Printf("verdict\t%s\t%s\t%s\n", found.verdict, name, words)
}

func must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

func equal(expected, found any) {
	if fmt.Sprint(expected) != fmt.Sprint(found) {
		panic(failure(fmt.Sprintf("expected %v, found %v", expected, found)))
	}
}

// starves has three connections take a step and stay idle, on a pool of two; each then asks at
// once, and so does a fourth.
func starves[C any](name string, open func() C, step func(C), ask func(C), closed func(C)) {
	check("idle after "+name, func() any {
		var held []C
		defer func() {
			for _, one := range held {
				closed(one)
			}
		}()
		for number := range 3 {
			inTime(fmt.Sprintf("the step of %d", number), func() {
				held = append(held, open())
				step(held[number])
			})
		}
		inTime("the fourth connection", func() { held = append(held, open()) })
		for _, number := range []int{3, 0, 1, 2} {
			inTime(fmt.Sprintf("a query of %d", number), func() { ask(held[number]) })
		}
		return nil
	})
}

func inTime(what string, body func()) {
	since := time.Now()
	body()
	if took := time.Since(since); took > atOnce {
		panic(failure(fmt.Sprintf("%s took %v", what, took)))
	}
}

// together runs all in goroutines of their own and raises a failure of one of them.
func together(count int, body func(own int)) {
	var wait sync.WaitGroup
	failures := make(chan any, count)
	for own := range count {
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer func() {
				if cause := recover(); cause != nil {
					failures <- cause
				}
			}()
			body(own)
		}()
	}
	wait.Wait()
	select {
	case cause := <-failures:
		panic(cause)
	default:
	}
}
