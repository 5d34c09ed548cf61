package chart

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/support/env/install"
)

// pair is the two managers. Like a Deployment it has one that ended started again, but only when it is told to.
type pair struct {
	sallyport *install.Sallyport
	options   install.Options

	mu       sync.Mutex
	replicas []*replica
}

// replica is one of them, by the name that the world knows it by.
type replica struct {
	name    string
	ports   install.Ports
	manager *install.Manager
	killed  bool // by the test, and not to be started before the next round
}

func newPair(s *install.Sallyport, o install.Options) *pair {
	return &pair{sallyport: s, options: o, replicas: []*replica{
		{name: "a", ports: install.Ports{Webhook: 9444, Metrics: 8082, Health: 8083}},
		{name: "b", ports: install.Ports{Webhook: 9445, Metrics: 8084, Health: 8085}},
	}}
}

// revive starts each that does not run: at first, and if it ended by itself, as one does that cannot renew its lease.
func (p *pair) revive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.killed || r.runs() {
			continue
		}
		o := p.options
		o.Env = stack.sim.Environment(r.name)
		var err error
		if r.manager, err = p.sallyport.Manager(o, "sallyport-"+r.name, r.ports); err != nil {
			return err
		}
	}
	return nil
}

// add adds a replica, until the test ends.
func (p *pair) add(t *testing.T, name string, ports install.Ports) {
	t.Helper()
	p.replicas = append(p.replicas, &replica{name: name, ports: ports})
	t.Cleanup(func() {
		last := len(p.replicas) - 1
		_ = p.end(name, (*install.Manager).Kill)
		p.replicas = p.replicas[:last]
		if err := balance(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(p.revive(), p.awaitReady(t.Context()), balance()); err != nil {
		t.Fatal(err)
	}
}

// pause stops all replicas, until resume is called.
func (p *pair) pause() (resume func() error, err error) {
	var all []func() error
	for _, r := range p.replicas {
		one, paused := r.manager.Pause()
		all, err = append(all, one), errors.Join(err, paused)
	}
	return func() (err error) {
		for _, one := range all {
			err = errors.Join(err, one())
		}
		return err
	}, err
}

func (p *pair) managers() (all []*install.Manager) {
	for _, r := range p.replicas {
		all = append(all, r.manager)
	}
	return all
}

func (r *replica) runs() bool { return r.manager != nil && runs(r.manager) }

func runs(manager *install.Manager) bool {
	select {
	case <-manager.Ended():
		return false
	default:
		return true
	}
}

// forgive has those that were killed started again.
func (p *pair) forgive() error {
	p.mu.Lock()
	for _, r := range p.replicas {
		r.killed = false
	}
	p.mu.Unlock()
	return p.revive()
}

// end ends the replica of that name with what is given: (*install.Manager).Kill or Stop.
func (p *pair) end(name string, how func(*install.Manager) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.name == name && r.runs() {
			r.killed = true
			return how(r.manager)
		}
	}
	return errors.New("replica " + name + " does not run")
}

func (p *pair) awaitReady(ctx context.Context) error {
	for _, r := range p.replicas {
		if err := r.manager.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// backends are what a balancer needs to know of them, which stays when one is started again.
func (p *pair) backends() (all []install.Backend) {
	for _, r := range p.replicas {
		all = append(all, r.manager.Backend())
	}
	return all
}

// leader names the one that leads, and nobody if none does or it cannot be told.
func (p *pair) leader(ctx context.Context) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if metrics, err := r.manager.Metrics(ctx); err == nil && strings.Contains(metrics, "leader_election_master_status{name=\"sallyport-manager\"} 1\n") {
			return r.name
		}
	}
	return ""
}

var decisions = regexp.MustCompile(`(?m)^sallyport_decisions_total\{.*webhook="(?:mutate|validate)".* (\d+)$`)

// admissions counts the decisions at admission of each replica.
func (p *pair) admissions(ctx context.Context) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int{}
	for _, r := range p.replicas {
		metrics, _ := r.manager.Metrics(ctx)
		for _, line := range decisions.FindAllStringSubmatch(metrics, -1) {
			n, _ := strconv.Atoi(line[1])
			counts[r.name] += n
		}
	}
	return counts
}

func (p *pair) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.runs() {
			err = errors.Join(err, r.manager.Kill())
		}
	}
	return errors.Join(err, p.sallyport.Remove())
}
