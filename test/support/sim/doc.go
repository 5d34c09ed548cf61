// Package sim is a runtime for tests that outlives the manager: a fake world, served over HTTP, and its client.
//
// The world stays in the process of the test. A manager of its own process is a client of it, and can be killed at any
// moment of a call while the world, and what is in flight there, stays.
package sim

import (
	"errors"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// path is where the world takes calls.
const path = "/call"

// request is a call on its way to the world.
type request struct {
	Client  string
	Verb    runtime.Verb
	Machine runtime.Machine
	Disk    runtime.Disk   `json:",omitzero"`
	Mode    runtime.Mode   `json:",omitempty"`
	Task    string         `json:",omitempty"`
	Target  runtime.Target `json:",omitzero"`
	// Deadline is when the caller gives up. A request that arrives later is one that never will.
	Deadline time.Time `json:",omitzero"`
}

// reply is what came of it.
type reply struct {
	Observation runtime.Observation     `json:",omitzero"`
	InstanceID  string                  `json:",omitempty"`
	Disk        runtime.DiskObservation `json:",omitzero"`
	DiskID      string                  `json:",omitempty"`
	Failure     *failure                `json:",omitempty"`
}

// failure is an error on its way back.
type failure struct {
	Kind    runtime.Kind `json:",omitempty"` // empty if it was none of the package runtime
	Message string
	Cause   string `json:",omitempty"`
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	typed, ok := errors.AsType[*runtime.Error](err)
	if !ok {
		return &failure{Message: err.Error()}
	}
	f := &failure{Kind: typed.Kind, Message: typed.Message}
	if typed.Cause != nil {
		f.Cause = typed.Cause.Error()
	}
	return f
}

func (f *failure) err() error {
	switch {
	case f == nil:
		return nil
	case f.Kind == "":
		return errors.New(f.Message)
	}
	err := &runtime.Error{Kind: f.Kind, Message: f.Message}
	if f.Cause != "" {
		err.Cause = errors.New(f.Cause)
	}
	return err
}
