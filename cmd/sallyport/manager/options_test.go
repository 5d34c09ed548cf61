package manager

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// parsed gives the options that a command line means.
func parsed(t *testing.T, line string) *Options {
	t.Helper()
	o := &Options{}
	command := NewCommand(nil)
	command.ResetFlags()
	o.addFlags(command)
	if err := command.ParseFlags(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return o
}

// refuses checks that a command line ends the manager with an error that says all that.
func refuses(t *testing.T, line string, names ...string) {
	t.Helper()
	err := parsed(t, line).Run(t.Context(), &rest.Config{}, nil)
	if err == nil {
		t.Errorf("%s was taken", line)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v does not say %q", line, err, name)
		}
	}
}

// A wrong flag ends the manager before it touches a cluster, and is named.
func TestLeaseFlagsMustFitEachOther(t *testing.T) {
	for line, names := range map[string][]string{
		"--runtime-call-timeout 0s":                       {"--runtime-call-timeout"},
		"--leader-elect=false --runtime-call-timeout -1s": {"--runtime-call-timeout"},
		"--lease-duration 0s":                             {"--lease-duration"},
		"--lease-duration 15500ms":                        {"--lease-duration", "whole seconds"},
		"--renew-deadline -1s":                            {"--renew-deadline"},
		"--retry-period 0s":                               {"--retry-period"},
		"--renew-deadline 2s":                             {"--renew-deadline", "2.4s", "--retry-period"},
		"--runtime-call-timeout 6s":                       {"--renew-deadline 10s", "--runtime-call-timeout 6s", "--lease-duration 15s"},
		"--lease-duration 10s --runtime-call-timeout 1ms": {"--renew-deadline 10s", "--runtime-call-timeout 1ms", "--lease-duration 10s"},
		"--renew-deadline 12s --lease-duration 16s":       {"--renew-deadline 12s", "--runtime-call-timeout 5s"},
		"--retry-period 9s":                               {"--renew-deadline", "--retry-period"},
		"--renew-deadline 16s --runtime-call-timeout 1ns": {"--lease-duration 15s"},
		"--lease-duration 1s --leader-elect --release x":  {"--lease-duration 1s"},
	} {
		refuses(t, line, names...)
	}
	for _, line := range []string{"", "--lease-duration 3s --renew-deadline 2s --retry-period 300ms --runtime-call-timeout 1s", "--leader-elect=false --lease-duration 0s"} {
		if err := parsed(t, line).validate(); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestTheLeaseIsWhereItIsSaidToBe(t *testing.T) {
	if got, err := parsed(t, "--namespace here").namespace(); got != "here" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// Without a label that only nodes with an agent have, Pods of machines could run on any.
func TestPodsNeedNodesOfTheirOwn(t *testing.T) {
	o := parsed(t, "--pod-runtime")
	if err := o.validate(); err != nil {
		t.Errorf("by default: %v", err)
	}
	o.PodNodeSelector = nil
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), "--pod-node-selector") {
		t.Errorf("got %v", err)
	}
}
