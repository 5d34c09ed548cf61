package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Keys in the extraConfig of a machine. They contain no slash, which some tools for VMX files do not accept.
const (
	// OwnerKey is the owner mark: the UID of the machine's VirtualMachine.
	OwnerKey = "sallyport.owner"
	// NameKey is the namespace and name of that VirtualMachine, for users. It gives no right to the machine: it only
	// helps to find a machine of an earlier VirtualMachine of that name.
	NameKey = "sallyport.name"
	// PowerOnsKey counts the power-ons. It is kept on release: a running machine that is released and adopted again
	// keeps its incarnation.
	PowerOnsKey = "sallyport.powerOns"
	// MoveKey is the last requested move.
	MoveKey = "sallyport.move"
	// MadeFromKey is the release of the VSphereTemplate from which the machine was created.
	MadeFromKey = "sallyport.madeFrom"
)

// allKeys are the keys in the order in which they are written.
var allKeys = []string{OwnerKey, NameKey, PowerOnsKey, MoveKey, MadeFromKey}

// powerOns is written before a power-on: the count including it, and the time of the write.
type powerOns struct {
	count int
	at    time.Time
}

func parsePowerOns(text string) (p powerOns) {
	count, at, _ := strings.Cut(text, " ")
	// Text written by other clients counts as zero.
	p.count, _ = strconv.Atoi(count)
	p.at, _ = time.Parse(time.RFC3339Nano, at)
	return p
}

func (p powerOns) String() string {
	return strconv.Itoa(p.count) + " " + p.at.UTC().Format(time.RFC3339Nano)
}

// incarnation returns the incarnation of a machine powered on at that time: the count distinguishes our power-ons
// even if vCenter's times have whole seconds, and the time distinguishes those of others. Seconds are enough for
// that, and less likely to change when vCenter reads a time back.
//
// A count that was written after the power-on belongs to an attempt that failed because another client was first: it
// is ignored, so that the incarnation of a running machine does not change. (If another client powers the machine on
// while the count is being written, its power-on gets the new count; only this process could have observed the
// machine in between, and it is busy writing.) If the clocks differ so much that the order is wrong, the incarnations
// are different values but still distinct.
func (p powerOns) incarnation(boot *time.Time) string {
	if boot == nil {
		if p.count == 0 {
			return ""
		}
		return strconv.Itoa(p.count)
	}
	at := p.at
	if boot.Nanosecond() == 0 {
		at = at.Truncate(time.Second)
	}
	count := p.count
	if at.After(*boot) {
		count--
	}
	return fmt.Sprintf("%d@%d", count, boot.Unix())
}

// move is written before a move: the time by vCenter's clock, the incarnation and the host. It tells the target of a
// relocation in flight, which vCenter does not report. The incarnation is included because some versions of vCenter
// forget the time of the power-on when a machine is moved.
type move struct {
	at          time.Time
	incarnation string
	host        string
}

func parseMove(text string) (m move) {
	fields := strings.SplitN(text, " ", 3)
	if len(fields) != 3 {
		return m
	}
	m.at, _ = time.Parse(time.RFC3339Nano, fields[0])
	m.incarnation, m.host = fields[1], fields[2]
	return m
}

func (m move) String() string {
	return m.at.UTC().Format(time.RFC3339Nano) + " " + m.incarnation + " " + m.host
}

// noteLasts is how long after a note its task can have been created. A call lasts seconds.
const noteLasts = time.Minute

// announced reports whether a task was created soon after a note of that time.
func announced(at time.Time, info types.TaskInfo) bool {
	// The note's time was rounded to the resolution of vCenter's clock.
	after := info.QueueTime.Sub(at)
	return after >= -time.Second && after < noteLasts
}

// write changes keys in the machine's extraConfig (an empty value removes a key) and waits for completion. If the
// configuration has changed since it was read, nothing is written and the error is InvalidState, so that of two
// concurrent writers one fails.
func (r *Runtime) write(ctx context.Context, s *sighting, values map[string]string) error {
	return r.Reconfigure(ctx, &s.vm, s.noting(values))
}

// noting returns the reconfiguration for write.
func (s *sighting) noting(values map[string]string) (spec types.VirtualMachineConfigSpec) {
	for _, key := range allKeys {
		value, set := values[key]
		// Some versions add an empty entry when a missing key is removed.
		if set && (value != "" || s.extraConfig[key] != "") {
			spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
		}
	}
	return spec
}

// ExtraConfigOf returns the values of our keys in the extraConfig of a machine.
func ExtraConfigOf(vm *mo.VirtualMachine) map[string]string {
	keys := map[string]string{}
	for _, option := range vm.Config.ExtraConfig {
		value := option.GetOptionValue()
		if text, ok := value.Value.(string); ok && slices.Contains(allKeys, value.Key) {
			keys[value.Key] = text
		}
	}
	return keys
}
