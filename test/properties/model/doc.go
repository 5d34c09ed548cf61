// Package model tests the claim protocol as a whole: the reconcilers of operations and of machines, as they are, on an API
// server and a runtime in memory, under a scheduler that decides at every call who goes on, who crashes and what fails.
//
// A run is drawn by rapid, so that one that fails is made smaller and can be run again:
//
//	go test ./test/properties/model -run TestClaimProtocol -rapid.checks=20000
//
// Each process of the manager is a set of goroutines of which one goes on at a time, up to its next call of the API server
// or of the runtime. They run in a bubble of testing/synctest: its clock is the model's, and it tells who waits for a lock.
package model
