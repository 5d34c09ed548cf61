package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/test/support/env/install"
)

// attempt runs a step that is not part of the output.
func (s *show) attempt(what string, do func(context.Context) error) {
	if err := do(s.ctx); err != nil {
		s.fail("%s: %v", what, err)
	}
}

// operation is the manifest of an operation with a generated name.
func operation(spec string) string {
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {generateName: ask-}
spec: %s
`, spec)
}

// parsed is a manifest as an object, of the team but for policies.
func (s *show) parsed(manifest string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		s.fail("parsing a manifest: %v", err)
	}
	if o.GetKind() != "RegoPolicy" {
		o.SetNamespace(team)
	}
	return o
}

// settled waits until every replica gives the expected answer. It sends the requests directly to the replicas. A user does not need to
// wait, because it takes less time than the next command.
func (s *show) settled(manifest, answer string) {
	s.each(manifest, answer, func(string, time.Duration) {})
}

func (s *show) replicasRefuse(manifest, words, after string) {
	s.each(manifest, words, func(replica string, took time.Duration) {
		s.note("%s denies the request %.1f s after %s: %q", replica, took.Seconds(), after, words)
	})
}

// note prints a line that is not the output of a command.
func (s *show) note(format string, args ...any) {
	s.gap()
	s.Say("%s", s.Paint(terminal.Cyan, fmt.Sprintf(format, args...)))
}

// each sends a request to each replica until it gives the expected answer.
func (s *show) each(manifest, answer string, answered func(replica string, took time.Duration)) {
	review, err := install.Creation(s.parsed(manifest), "admin")
	if err != nil {
		s.fail("sending requests to the replicas: %v", err)
	}
	review.Request.UserInfo.Groups = []string{"system:masters"} // who may do everything in the cluster, as the user of kubectl
	began := time.Now()
	replicas := s.kubelet.Replicas()
	if len(replicas) != 2 {
		s.fail("expected two replicas, found %q", replicas)
	}
	for _, replica := range replicas {
		s.until(fmt.Sprintf("%s answers %q", replica, answer), func() bool {
			response, err := s.kubelet.Ask(s.ctx, replica, review)
			return err == nil && strings.Contains(install.Answered(response), answer)
		})
		answered(replica, time.Since(began))
	}
}

// client repeats a request while the cluster changes.
type client struct {
	*install.Load
	answers install.Answers
	mark    int // what was shown so far
}

// keepAsking starts the client with a request that is denied with a message.
func (s *show) keepAsking(manifest, words string) {
	s.attempt("starting a client", func(ctx context.Context) error {
		const question = "the client"
		object := s.parsed(manifest)
		load, err := install.NewLoad(ctx, s.plane.Config, install.Question{Name: question, Object: object.DeepCopy})
		if err != nil {
			return err
		}
		s.onClose(func() error { load.End(); return nil })
		s.client = &client{Load: load, answers: install.Answers{question: {words}}}
		return nil
	})
}

// meanwhile prints the responses to the client since the last time.
func (s *show) meanwhile() {
	s.attempt("the client", func(ctx context.Context) error {
		const few = 3 // of how it is now
		if _, err := s.client.More(ctx, few); err != nil {
			return err
		}
		replies := s.client.Since(s.client.mark, time.Time{})
		s.client.mark += len(replies)
		if err := s.client.answers.Check(replies); err != nil {
			return err
		}
		s.note("The client received %d responses in the meantime. Each of them was this denial.", len(replies))
		return nil
	})
}

func (s *show) stopAsking() {
	s.attempt("the client", func(context.Context) error {
		s.asked = s.client.End()
		return s.client.answers.Check(s.client.Since(0, time.Time{}))
	})
}
