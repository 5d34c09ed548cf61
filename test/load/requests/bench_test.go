// Package requests_test measures what requests cost the API server and Sallyport, as CPU time of both.
package requests_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/site"
)

func TestMain(m *testing.M) {
	beNoop()
	install.Main(m)
}

// bench is a site with ConfigMaps.
type bench struct {
	*testing.T
	*site.Site
	made int
	// others are further processes that are measured, by name.
	others map[string]int
}

func newBench(t *testing.T, s *site.Site) *bench {
	return &bench{T: t, Site: s, others: map[string]int{}}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// price is the CPU time of a request in milliseconds, by process.
type price map[string]float64

func (p price) total() (all float64) {
	for _, milliseconds := range p {
		all += milliseconds
	}
	return all
}

func (p price) String() string {
	var all []string
	for _, process := range slices.Sorted(maps.Keys(p)) {
		all = append(all, fmt.Sprintf("%s %.2f ms", process, p[process]))
	}
	return strings.Join(all, ", ")
}

// cost returns what a call costs that several callers make.
func (b *bench) cost(callers int, do func()) price {
	b.Helper()
	calls, before := 0, b.cpu()
	after := before
	for after.total()-before.total() < 300 {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range 5 {
					do()
				}
			})
		}
		all.Wait()
		calls += 5 * callers
		after = b.cpu()
	}
	p := price{}
	for name, used := range after {
		p[name] = (used - before[name]) / float64(calls)
	}
	return p
}

// cpu returns the CPU time that the API server, the manager and the other processes of this test have used, in milliseconds.
func (b *bench) cpu() price {
	b.Helper()
	used := price{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	b.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// man proc_pid_stat: the number, the name in parentheses, and what follows, from the third field on.
		head, after, _ := strings.Cut(string(text), ") ")
		pid, name, _ := strings.Cut(head, " (")
		fields := strings.Fields(after)
		switch number, is := b.others[name]; {
		case is && pid == strconv.Itoa(number):
		case fields[1] == strconv.Itoa(os.Getpid()) && (name == "kube-apiserver" || name == "sallyport"):
		default:
			continue
		}
		n, err := strconv.Atoi(pid)
		b.must(err)
		var at unix.Timespec
		b.must(unix.ClockGettime(int32(^n<<3|2), &at)) // man clock_getcpuclockid: the CPU time of that process, to the nanosecond
		used[name] += float64(at.Nano()) / float64(time.Millisecond)
	}
	if len(used) != 2+len(b.others) {
		b.Fatalf("of the processes that are measured, there are %s", fmt.Sprint(used))
	}
	return used
}
