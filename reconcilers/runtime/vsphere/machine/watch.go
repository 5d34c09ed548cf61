package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

const (
	// watchWait is how long vCenter holds a request for changes if there are none: one request per watchWait is the
	// cost of a watch.
	watchWait = 25 * time.Second
	// watchPatience is how much longer an answer may take.
	watchPatience = 10 * time.Second
	// unwatchPatience limits the end of a watch.
	unwatchPatience = 2 * time.Second
)

// watched are the properties whose changes may change an observation: a reconfiguration is a new version, and
// everything else is a recent task.
var watched = append([]string{
	"config.changeVersion", "config.instanceUuid", "config.template", "parent", "recentTask",
	"runtime.connectionState", "runtime.host", "runtime.powerState", "summary.runtime.bootTime",
}, ofGuest...)

var errSessionChanged = errors.New("the session in which changes were watched has ended")

type watch struct {
	server    *session.Server
	session   *vim25.Client
	collector *property.Collector
	machines  *view.ContainerView
	version   string
	ids       map[types.ManagedObjectReference]string // instance UUIDs of the observed machines
}

// Watch reports changes with one property collector for the whole vCenter. It implements [runtime.Watcher].
func (r *Runtime) Watch(ctx context.Context, changed func(instanceID string)) error {
	w := &watch{server: r.Server, ids: map[types.ManagedObjectReference]string{}}
	defer w.end(ctx)
	if err := w.begin(ctx); err != nil {
		return err
	}
	report := func(string) {} // the initial state is not a change; changes meanwhile are reported by the call below
	for began := false; ; {
		updates, more, err := w.next(ctx)
		if err != nil {
			return err
		}
		for id := range w.record(updates) {
			report(id)
		}
		if !began && !more {
			began, report = true, changed
			changed("")
		}
	}
}

// begin starts the collection of changes for all machines, including new ones.
func (w *watch) begin(ctx context.Context) error {
	return w.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		if w.machines, err = view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"VirtualMachine"}, true); err != nil {
			return fmt.Errorf("making a view of all machines: %w", err)
		}
		if w.collector, err = property.DefaultCollector(c).Create(ctx); err != nil {
			return fmt.Errorf("making a property collector: %w", err)
		}
		_, err = w.collector.CreateFilter(ctx, types.CreateFilter{Spec: types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{{Obj: w.machines.Reference(), Skip: new(true), SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "ContainerView", Path: "view"},
			}}},
			PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: watched}},
		}})
		return err
	})
}

// next waits for changes, and reports whether more are available.
func (w *watch) next(ctx context.Context) (updates []types.ObjectUpdate, more bool, err error) {
	err = w.call(ctx, func(ctx context.Context, c *vim25.Client) error {
		answer, err := methods.WaitForUpdatesEx(ctx, c, &types.WaitForUpdatesEx{
			This: w.collector.Reference(), Version: w.version,
			Options: &types.WaitOptions{MaxWaitSeconds: new(int32(watchWait / time.Second))},
		})
		if err != nil || answer.Returnval == nil {
			return err
		}
		w.version = answer.Returnval.Version
		more = answer.Returnval.Truncated != nil && *answer.Returnval.Truncated
		for _, filter := range answer.Returnval.FilterSet {
			updates = append(updates, filter.ObjectSet...)
		}
		return nil
	})
	return updates, more, err
}

// record returns the IDs of the changed machines.
func (w *watch) record(updates []types.ObjectUpdate) map[string]bool {
	ids := map[string]bool{}
	for _, u := range updates {
		ids[w.ids[u.Obj]] = true // its former ID
		for _, c := range u.ChangeSet {
			if id, is := c.Val.(string); is && c.Name == "config.instanceUuid" {
				w.ids[u.Obj] = id
			}
		}
		if u.Kind == types.ObjectUpdateKindLeave {
			delete(w.ids, u.Obj)
		}
		ids[w.ids[u.Obj]] = true
	}
	delete(ids, "") // unknown
	return ids
}

func (w *watch) call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, watchWait+watchPatience)
	defer cancel()
	return w.server.Ask(ctx, func(c *vim25.Client) error {
		if w.session == nil {
			w.session = c
		}
		if w.session != c {
			return errSessionChanged
		}
		return request(ctx, c)
	})
}

// end ends the watch in vCenter and pending requests. It would end with the session anyway.
func (w *watch) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unwatchPatience)
	defer cancel()
	_ = w.call(ctx, func(ctx context.Context, _ *vim25.Client) error {
		if w.collector != nil {
			_ = w.collector.CancelWaitForUpdates(ctx)
			_ = w.collector.Destroy(ctx)
		}
		if w.machines != nil {
			_ = w.machines.Destroy(ctx)
		}
		return nil
	})
}
