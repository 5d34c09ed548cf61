package main

import (
	"bytes"
	_ "embed" // for what the world is made of
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed testdata/review.json
var reviewText []byte

//go:embed testdata/machine.json
var machineText []byte

//go:embed testdata/operation.json
var operationText []byte

// machines is how many idle machines there are, and how many in a large world have an unfinished operation that yields to
// nothing. Each request is for another one.
const machines = 5_000

// The worlds, by how many unfinished operations there are.
const smallWorld, largeWorld = 100, 100_000

// compact is what the API server and its clients send: JSON without the spaces that make it readable here.
func compact(text []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		panic(err) // it is in this binary
	}
	return b.String()
}

var reviewFor, machineCalled, operationFor = compact(reviewText), compact(machineText), compact(operationText)

func of(text, machine string) []byte { return []byte(strings.ReplaceAll(text, "MACHINE", machine)) }

func idle(i int) string { return fmt.Sprintf("web-%05d", i%machines) }

func busy(i int) string { return fmt.Sprintf("busy-%05d", i%machines) }

// operated is the machine of the i-th unfinished operation. In a small world it is none that is asked about.
func operated(i, operations int) string {
	if operations >= machines && i < machines {
		return busy(i)
	}
	return fmt.Sprintf("elsewhere-%06d", i)
}

// bodies are reviews of requests, for other machines each.
func bodies(n int, machine func(int) string) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = of(reviewFor, machine(i))
	}
	return all
}
