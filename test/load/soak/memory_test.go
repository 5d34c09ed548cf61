package soak

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// memory is the chart's resources.limits.memory.
const memory = 1 << 30

// usage is the largest value that was seen of each, in bytes.
type usage struct {
	// replicas has the resident memory of each replica.
	replicas []float64
	// apiServer is what the last garbage collection of kube-apiserver found in use. Its resident memory depends on GOGC and GOMEMLIMIT, too.
	apiServer float64
}

// watchMemory samples memory until the test ends or the returned function is called, which returns the largest values.
func (p *pair) watchMemory(t *testing.T) func() usage {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(p.plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	most := usage{replicas: make([]float64, len(p.replicas))}
	var all sync.WaitGroup
	for i, m := range p.replicas {
		all.Go(func() {
			most.replicas[i] = peak(ctx, 250*time.Millisecond, "process_resident_memory_bytes", m.Metrics)
		})
	}
	all.Go(func() {
		most.apiServer = peak(ctx, time.Second, "go_gc_heap_live_bytes", func(ctx context.Context) (string, error) {
			text, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			return string(text), err
		})
	})
	return func() usage {
		end()
		all.Wait()
		return most
	}
}

// peak reads a metric at that interval until the context ends, and returns its largest value.
func peak(ctx context.Context, interval time.Duration, name string, metrics func(context.Context) (string, error)) (most float64) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if text, err := metrics(ctx); err == nil {
			if now, err := value(text, name); err == nil {
				most = max(most, now)
			}
		}
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
	}
}

// value returns the value of a metric without labels.
func value(text, name string) (float64, error) {
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return 0, errors.New("no " + name)
	}
	return strconv.ParseFloat(found[1], 64)
}

// limitReplicas fails the test if a replica had more memory than its limit.
func (p *pair) limitReplicas(t *testing.T, had usage) {
	t.Helper()
	for i, m := range p.replicas {
		bytes := had.replicas[i]
		if t.Logf("%s had %.0f MiB at most", m.Name, bytes/(1<<20)); bytes == 0 || bytes > memory {
			t.Errorf("%s had %.0f MiB, and its limit is %d", m.Name, bytes/(1<<20), memory>>20)
		}
	}
}

// greedier is how many times as much memory as before the API server may have in use. Another garbage collection may come earlier.
const greedier = 3

// compareMemory fails the test if a replica had more memory than its limit, or the API server had more than that many bytes in use.
func (s *street) compareMemory(beside string, had usage, most float64) {
	s.Helper()
	s.limitReplicas(s.T.T, had)
	s.Logf("the API server had %.0f MiB in use beside %s", had.apiServer/(1<<20), beside)
	if had.apiServer == 0 || had.apiServer > most {
		s.Errorf("it had %.0f MiB in use beside %s, and may have %.0f", had.apiServer/(1<<20), beside, most/(1<<20))
	}
}
