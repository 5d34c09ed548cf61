package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// What is remembered in the extraConfig of a machine. The names have no slash, which not every tool that edits a VMX file
// takes.
const (
	// OwnerKey is the owner's marker: the UID of the VirtualMachine that has adopted the machine.
	OwnerKey = "sallyport.owner"
	// NameKey is the namespace and the name of that VirtualMachine, for users. It gives no right to the machine: by it only a machine of an
	// earlier VirtualMachine of the name is noticed.
	NameKey = "sallyport.name"
	// PowerOnsKey counts the power-ons. It outlives the adoption: a machine that is released and adopted again while it
	// is on keeps its incarnation.
	PowerOnsKey = "sallyport.powerOns"
	// MoveKey is the last move that was asked for.
	MoveKey = "sallyport.move"
	// MadeFromKey says which release of a VSphereTemplate the machine was made from.
	MadeFromKey = "sallyport.madeFrom"
)

// allKeys are the keys in the order in which they are written.
var allKeys = []string{OwnerKey, NameKey, PowerOnsKey, MoveKey, MadeFromKey}

// powerOns is what is written before a power-on: how many there were with it, and when it was written.
type powerOns struct {
	count int
	at    time.Time
}

func parsePowerOns(text string) (p powerOns) {
	count, at, _ := strings.Cut(text, " ")
	// What somebody else has written there counts as nothing.
	p.count, _ = strconv.Atoi(count)
	p.at, _ = time.Parse(time.RFC3339Nano, at)
	return p
}

func (p powerOns) String() string {
	return strconv.Itoa(p.count) + " " + p.at.UTC().Format(time.RFC3339Nano)
}

// incarnation gives the mark of the power-on at that time: the count tells ours apart, also if vCenter's times are whole
// seconds, and the time tells those of others. Seconds will do for that, and are less likely to change when vCenter
// reads a time back.
//
// A count that was written after the machine had been powered on belongs to a power-on that came to nothing, because
// somebody else was first: it does not count, so that the mark of a machine that is on stays as it is. (Whoever else
// powers it on while the count is being written still gets it; only this process could have looked in between, and it is
// busy writing.) If the clocks differ so much that the order is not the true one, the marks are other ones and as
// different from each other.
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

// move is what is written before a move: when, by vCenter's clock, in which incarnation and to which host. By the time it
// is known where a relocation in flight goes, which vCenter does not say. The incarnation is there because some versions
// of vCenter forget the time of the power-on of a machine that is moved.
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

// noteLasts is how long after a note the task that it announces can have been made. A call lasts seconds.
const noteLasts = time.Minute

// announced reports whether a task was made soon after a note of that time.
func announced(at time.Time, info types.TaskInfo) bool {
	// The note's time was rounded to whatever vCenter says when asked for it.
	after := info.QueueTime.Sub(at)
	return after >= -time.Second && after < noteLasts
}

// now gives the time by vCenter's clock.
func (r *Runtime) now(ctx context.Context) (now time.Time, err error) {
	err = r.server.call(ctx, func(c *vim25.Client) error {
		at, err := methods.GetCurrentTime(ctx, c)
		if err == nil {
			now = *at
		}
		return err
	})
	return now, err
}

// write changes what is remembered in the machine's extraConfig, an empty value removes a key, and waits until that is
// done. If the machine's configuration has changed since it was seen, nothing is written and the error is InvalidState:
// that lets one win of two who write at the same time.
func (r *Runtime) write(ctx context.Context, s *sighting, values map[string]string) error {
	return r.reconfigure(ctx, s, s.noting(values))
}

// noting is the change of the configuration that write makes.
func (s *sighting) noting(values map[string]string) (spec types.VirtualMachineConfigSpec) {
	for _, key := range allKeys {
		value, set := values[key]
		// Removing what is not there would add it, empty, in some versions.
		if set && (value != "" || s.keys[key] != "") {
			spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
		}
	}
	return spec
}

// reconfigure changes the machine's configuration, and waits until that is done, if it has not changed since it was seen.
func (r *Runtime) reconfigure(ctx context.Context, s *sighting, spec types.VirtualMachineConfigSpec) error {
	spec.ChangeVersion = s.vm.Config.ChangeVersion
	_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewVirtualMachine(c, s.vm.Self).Reconfigure(ctx, spec)
	})
	return err
}

// carryOut begins a task, and waits until it has ended.
func (r *Runtime) carryOut(ctx context.Context, begin func(*vim25.Client) (*object.Task, error)) (ended types.TaskInfo, err error) {
	var ref types.ManagedObjectReference
	err = r.server.call(ctx, func(c *vim25.Client) error {
		begun, err := begin(c)
		if err == nil {
			ref = begun.Reference()
		}
		return err
	})
	for waits := briefly(); err == nil; err = pause(ctx, waits) {
		var t mo.Task
		err = r.server.call(ctx, func(c *vim25.Client) error {
			return property.DefaultCollector(c).RetrieveOne(ctx, ref, []string{"info"}, &t)
		})
		switch {
		case err != nil:
			// The task is begun; what has become of it is not known.
			return ended, runtime.NewUnavailable(err, "vCenter %s did not report the result of a change", r.server.config.Name)
		case t.Info.State == types.TaskInfoStateSuccess:
			return t.Info, nil
		case t.Info.State == types.TaskInfoStateError:
			return ended, r.server.translate(ctx, failure(t.Info))
		}
	}
	return ended, r.server.translate(ctx, err)
}

// remembered gives the values of our keys.
func remembered(vm *mo.VirtualMachine) map[string]string {
	keys := map[string]string{}
	for _, option := range vm.Config.ExtraConfig {
		value := option.GetOptionValue()
		if text, ok := value.Value.(string); ok && slices.Contains(allKeys, value.Key) {
			keys[value.Key] = text
		}
	}
	return keys
}
