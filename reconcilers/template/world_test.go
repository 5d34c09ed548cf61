package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/mortal"
)

const (
	namespace = "team-a"
	svst      = "ubuntu"
	name      = "ubuntu-24.04" // of the template in vCenter
)

// lost begins the UIDs of VSphereTemplates of the name that are no more.
const lost = "lost-"

// folders are what vCenters have, by folder. Everything that anybody does there is a call of a process.
type folders struct {
	all    map[string][]*templates.Item // of any owner
	owners map[string]string            // by MoRef; "" is nobody we know
	made   int
	refuse func(verb string, item *templates.Item, name string) error
	ever   bool // the name has been on a whole template
	bare   int  // how often a change left the name without one, since then
}

func newFolders() *folders {
	return &folders{all: map[string][]*templates.Item{}, owners: map[string]string{}}
}

// whole tells whether folder a has a whole template under the name.
func (f *folders) whole() bool {
	return slices.ContainsFunc(f.all[folder], func(i *templates.Item) bool {
		return i.Name == name && i.Stage == templates.Whole && f.owners[i.MoRef] != ""
	})
}

func (f *folders) add(folder, owner string, item templates.Item) *templates.Item {
	f.made++
	item.MoRef, item.Version = fmt.Sprintf("vm-%d", f.made), "1"
	item.InstanceUUID = cmp.Or(item.InstanceUUID, fmt.Sprintf("uuid-%d", f.made))
	f.owners[item.MoRef] = owner
	f.all[folder] = append(f.all[folder], &item)
	return &item
}

func (f *folders) named(folder, name string) *templates.Item {
	for _, item := range f.all[folder] {
		if item.Name == name {
			return item
		}
	}
	return nil
}

// describe says what is in a folder, each item as name=release, with a question mark where it is not whole, and ! where it is not ours.
func (f *folders) describe(folder string) string {
	var all []string
	for _, i := range f.all[folder] {
		mark := map[templates.Stage]string{templates.Partial: "??", templates.Imported: "?", templates.Whole: ""}[i.Stage]
		if f.owners[i.MoRef] == "" {
			mark = "!"
		}
		all = append(all, i.Name+"="+i.Release+mark)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// store is what one process sees of them.
type store struct {
	*folders
	call func(func() error) error
}

func (s store) Look(_ context.Context, d templates.Domain) (v templates.View, err error) {
	err = s.call(func() error {
		v.Others, v.Earlier = map[string]bool{}, map[string]templates.EarlierItem{}
		for _, item := range s.all[string(d.Domain.Folder)] {
			switch owner := types.UID(s.owners[item.MoRef]); {
			case owner == d.Owner, slices.Contains(d.Former, string(owner)):
				v.Items = append(v.Items, *item)
			case strings.HasPrefix(string(owner), lost):
				v.Earlier[item.Name] = templates.EarlierItem{Owner: owner, InstanceUUID: item.InstanceUUID}
				fallthrough
			default:
				v.Others[item.Name] = true
			}
		}
		return nil
	})
	return v, err
}

// change makes a change over the item as it was looked at.
func (s store) change(verb string, d templates.Domain, item templates.Item, name string, do func(*templates.Item)) (changed templates.Item, err error) {
	err = s.call(func() error {
		if s.refuse != nil {
			if err := s.refuse(verb, &item, name); err != nil {
				return err
			}
		}
		folder := string(d.Domain.Folder)
		if taken := s.named(folder, name); taken != nil && taken.MoRef != item.MoRef {
			return templates.NewTaken(nil, name)
		}
		for _, present := range s.all[folder] {
			switch {
			case present.MoRef != item.MoRef:
				continue
			case s.owners[present.MoRef] != string(d.Owner) && !slices.Contains(d.Former, s.owners[present.MoRef]):
				panic("what is not ours was changed: " + present.Name)
			case present.Version != item.Version:
				return runtime.NewInvalidState(nil, "somebody was faster")
			}
			do(present)
			present.Version += "+"
			changed = *present
			return nil
		}
		return runtime.NewInvalidState(nil, "it is gone")
	})
	return changed, err
}

func (s store) Import(_ context.Context, d templates.Domain, what templates.Import, _ func(int32)) (made templates.Item, err error) {
	var begun templates.Item // as it was made: another process may change it between the two calls
	err = s.call(func() error {
		if s.refuse != nil {
			if err := s.refuse("import", nil, what.Name); err != nil {
				return err
			}
		}
		if s.named(string(d.Domain.Folder), what.Name) != nil {
			return templates.NewTaken(nil, what.Name)
		}
		begun = *s.add(string(d.Domain.Folder), string(d.Owner), templates.Item{Mark: what.Mark, InstanceUUID: what.InstanceUUID, Name: what.Name, DiskType: what.DiskType})
		return nil
	})
	if err != nil {
		return made, err
	}
	return s.change("upload", d, begun, what.Name, func(i *templates.Item) { i.Stage = templates.Imported })
}

func (s store) Finish(_ context.Context, d templates.Domain, item templates.Item) (templates.Item, error) {
	return s.change("finish", d, item, item.Name, func(i *templates.Item) { i.Stage = templates.Whole })
}

func (s store) Rename(_ context.Context, d templates.Domain, item templates.Item, to string) (templates.Item, error) {
	return s.change("rename", d, item, to, func(i *templates.Item) { i.Name = to })
}

func (s store) Replace(ctx context.Context, d templates.Domain, old templates.Item, as string, item templates.Item) error {
	if _, err := s.Rename(ctx, d, old, as); err != nil {
		return err
	}
	_, err := s.Rename(ctx, d, item, old.Name)
	return err
}

func (s store) Destroy(_ context.Context, d templates.Domain, item templates.Item) error {
	_, err := s.change("destroy", d, item, item.Name, func(i *templates.Item) {
		folder := string(d.Domain.Folder)
		s.all[folder] = slices.DeleteFunc(s.all[folder], func(o *templates.Item) bool { return o == i })
	})
	return err
}

// ova is what is downloaded.
type ova struct{}

func (ova) Read([]byte) (int, error) { return 0, errors.New("nobody reads it") }
func (ova) Size() int64              { return 0 }
func (ova) Close() error             { return nil }

// world is an API server, a vCenter, and the processes that reconcile.
type world struct {
	client.WithWatch
	*folders
	ctx    context.Context
	now    time.Time
	events *events.FakeRecorder
	fetch  Source
}

func newWorld(ctx context.Context) *world {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err) // the types of this repository
	}
	api := apiserver.New(fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.VSphereTemplate{}).Build())
	w := &world{
		WithWatch: api, folders: newFolders(), ctx: ctx, now: time.Date(2026, 11, 23, 12, 0, 0, 7_654_321, time.UTC), events: events.NewFakeRecorder(1000),
		fetch: func(context.Context, templates.Domain) (templates.Archive, error) { return ova{}, nil },
	}
	return w
}

// process is a manager that takes itself for the leader.
type process struct {
	mortal.Process
	*world
	r *Reconciler
}

func (w *world) process() *process {
	p := &process{world: w}
	p.renew()
	return p
}

// renew begins another process in its place.
func (p *process) renew() {
	if p.r != nil {
		p.r.jobs.cancel()
		p.r.jobs.ending.Wait()
	}
	p.Begin()
	c := p.Client(p.WithWatch)
	p.r = &Reconciler{
		Client: c, Live: c, Events: p.events, Now: func() time.Time { return p.now },
		Stores: func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error) {
			return store{p.folders, p.call}, nil
		},
		Fetch: func(ctx context.Context, d templates.Domain) (templates.Archive, error) { return p.fetch(ctx, d) },
	}
	p.r.init()
}

// call makes a call of the vCenter, and counts how often the name is free after it.
func (p *process) call(call func() error) error {
	return p.Call(func() error {
		err := call()
		if p.whole() {
			p.ever = true
		} else if p.ever {
			p.bare++
		}
		return err
	})
}

// pass reconciles once, waits for what that began, and takes away what was said of its end.
func (p *process) pass() (ctrl.Result, error) {
	result, err := p.r.Reconcile(p.ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: svst}})
	p.r.jobs.ending.Wait()
	for len(p.r.ended) > 0 {
		<-p.r.ended
	}
	return result, err
}

// settle passes until nothing changes any more.
func (p *process) settle(t testing.TB) {
	t.Helper()
	for range 60 {
		before := p.describe("") + fmt.Sprint(p.snapshot())
		_, err := p.pass()
		p.now = p.now.Add(10 * time.Minute)
		if err == nil && before == p.describe("")+fmt.Sprint(p.snapshot()) {
			return
		}
	}
	t.Fatalf("it does not settle: %v", p.snapshot())
}

func (w *world) snapshot() map[string]string {
	all := map[string]string{}
	for _, folder := range slices.Sorted(maps.Keys(w.all)) {
		all[folder] = w.describe(folder)
	}
	all["status"] = fmt.Sprint(w.template())
	return all
}

func (w *world) template() *v1alpha1.VSphereTemplate {
	t := &v1alpha1.VSphereTemplate{}
	if err := w.Get(w.ctx, types.NamespacedName{Namespace: namespace, Name: svst}, t); err != nil {
		return nil
	}
	return t
}
