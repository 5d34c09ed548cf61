package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// site tells a subject where it is. It comes by an environment variable, because the program that is started may be a test.
type site struct {
	APIServer, Authority string
	// Folder is for the subject's certificate.
	Folder string
}

const siteVariable = "SALLYPORT_BENCH_SITE"

// beSubject runs as a subject, and ends, if the process was started as one. A subject is what is measured, alone in its process,
// and does as lines on its standard input say:
//
//	run ROW N      decide N requests
//	cpu            how much CPU time the process has used, in nanoseconds
//	allocated      how much memory the process has allocated, in bytes
//	swap           compile a changed policy and decide by it from then on
//	programs       check that decisions were compared with those of topdown, and were the same
//	profile FILE   write a CPU profile until the next such line
//
// It answers each with a line: what was asked for, "ok", or what is wrong.
func beSubject() {
	text, is := os.LookupEnv(siteVariable)
	if !is {
		return
	}
	if err := subject(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func subject(text string) error {
	ctrl.SetLogger(logr.Discard())
	var at site
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		return fmt.Errorf("reading %s: %w", siteVariable, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := newWorld(ctx, at)
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	address, err := w.serve(ctx, at.Folder)
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	rows, err := w.rows()
	if err != nil {
		return err
	}
	fmt.Printf("%s %d\n", address, w.cached)
	return w.obey(rows)
}

func (w *world) obey(rows map[string]func(n int) error) error {
	var profile *os.File
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var name string
		var n int
		var err error
		answer := "ok"
		switch order, rest, _ := strings.Cut(lines.Text(), " "); order {
		case "run":
			if _, err = fmt.Sscanf(rest, "%s %d", &name, &n); err == nil {
				err = rows[name](n)
			}
		case "cpu":
			answer = fmt.Sprint(cpuTime().Nanoseconds())
		case "allocated":
			answer = fmt.Sprint(allocated())
		case "swap":
			err = w.swap()
		case "programs":
			err = w.checkPrograms()
		case "profile":
			profile, err = profiling(profile, rest)
		default:
			err = errors.New("what is " + order)
		}
		if err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func profiling(last *os.File, next string) (*os.File, error) {
	if last != nil {
		pprof.StopCPUProfile()
		if err := last.Close(); err != nil {
			return nil, err
		}
	}
	if next == "" {
		return nil, nil
	}
	file, err := os.Create(next)
	if err != nil {
		return nil, err
	}
	return file, pprof.StartCPUProfile(file)
}

// cpuTime is what the process has used, of its own and in the kernel.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it has no reason to
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// allocated is how much memory was allocated since the start.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one found is swept now
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
