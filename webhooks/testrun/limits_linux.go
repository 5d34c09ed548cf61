package testrun

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// apply sets the limits of the process. They cannot be raised again.
func (l Limits) apply() error {
	data, err := dataInUse()
	if err != nil {
		return err
	}
	seconds := uint64(math.Ceil(l.Within.Seconds())) + 1
	for _, limit := range []struct {
		name       string
		which      int
		soft, hard uint64
	}{
		{"memory", syscall.RLIMIT_DATA, data + uint64(l.Memory), data + uint64(l.Memory)},
		{"processor time", syscall.RLIMIT_CPU, seconds, seconds + 1},
		{"core", syscall.RLIMIT_CORE, 0, 0},
		{"size of files", syscall.RLIMIT_FSIZE, 0, 0},
		{"number of files", syscall.RLIMIT_NOFILE, 16, 16},
	} {
		if err := syscall.Setrlimit(limit.which, &syscall.Rlimit{Cur: limit.soft, Max: limit.hard}); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
	}
	go endInTime()
	return nil
}

// endInTime ends the process at the first signal of the processor time limit; a second later the system would kill it.
func endInTime() {
	up := make(chan os.Signal, 1)
	signal.Notify(up, syscall.SIGXCPU)
	<-up
	fmt.Fprintln(os.Stderr, outOfTime)
	os.Exit(2)
}

// dataInUse returns what the system counts against its memory limit.
func dataInUse() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes uint64
		if n, _ := fmt.Sscanf(line, "VmData: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmData")
}
