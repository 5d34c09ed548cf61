//go:build !race

package sweep

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	vim "github.com/vmware/govmomi/vim25/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	templatestore "sallyport.dev/sallyport/reconcilers/runtime/vsphere/template"
	"sallyport.dev/sallyport/reconcilers/template"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// image is what every template is called, and room is for their files, in bytes.
const image, room = "ubuntu", 1 << 40

// change is what becomes of a VSphereTemplate: the releases that it has had, what is asked of it then, and what is in its folder in
// the end.
type change struct {
	name  string
	keep  int32
	had   []string
	begin func(*v1alpha1.VSphereTemplate) // Nil deletes it.
	ends  string
}

var changes = []change{
	{name: "the first release", begin: to("1"), ends: "ubuntu=1"},
	{name: "the next release", had: []string{"1"}, begin: to("2"), ends: "ubuntu=2"},
	{name: "the next release, with one kept", keep: 1, had: []string{"0", "1"}, begin: to("2"), ends: "ubuntu=2 ubuntu-1=1"},
	{name: "back to the release that was kept", keep: 1, had: []string{"1", "2"}, begin: to("1"), ends: "ubuntu=1 ubuntu-2=2"},
	{name: "deletion", keep: 1, had: []string{"1", "2"}},
}

func to(release string) func(*v1alpha1.VSphereTemplate) {
	return func(o *v1alpha1.VSphereTemplate) { o.Spec.Release = release }
}

// TestTemplates changes templates with every fault at every request, while somebody goes on cloning machines from them by name.
func TestTemplates(t *testing.T) {
	rows, all := make([]swept, len(changes)), make([]*templateRow, len(changes))
	for i, c := range changes {
		all[i] = newTemplateRow(t, inMemory(t), c)
		rows[i] = all[i]
	}
	fewer := 6
	if testing.Short() {
		fewer = 31
	}
	sweepRows(t, rows, max(1, *every*fewer))
	var text strings.Builder
	for _, r := range all {
		fmt.Fprintf(&text, "%s: %s\n", r.of, &r.seen)
	}
	t.Logf("what was seen of the name meanwhile\n%s", &text)
}

// templateRow is a change, on a vCenter of its own.
type templateRow struct {
	change
	api     client.WithWatch
	vcenter *vcsim.VCenter
	trials  atomic.Int64
	seen    sightings
	tally
}

func newTemplateRow(t *testing.T, api client.WithWatch, c change) *templateRow {
	t.Helper()
	vcenter, err := vcsim.Start(vcsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vcenter.Close)
	return &templateRow{change: c, api: api, vcenter: vcenter, tally: tally{of: c.name}}
}

func (r *templateRow) clean(ctx context.Context) error {
	t, err := r.newTrial(ctx)
	if err != nil {
		return err
	}
	p := t.process()
	called, err := t.carryOut(ctx, p)
	r.requests, r.end = requests(called), t.end()
	if want := []string{"the folder has " + r.ends}; err == nil && !slices.Equal(want, r.end) {
		err = fmt.Errorf("it ends with %q, want %q", r.end, want)
	}
	return errors.Join(err, p.close())
}

func (r *templateRow) point(ctx context.Context, at request, f fault) error {
	t, err := r.newTrial(ctx)
	if err != nil {
		return fmt.Errorf("before the change: %w", err)
	}
	p := t.process()
	f.befall(p.process, at)
	stop := t.customer()
	_, err = t.carryOut(ctx, p)
	stop()
	came := p.faults.Clear() == 0
	err = errors.Join(err, p.close(), t.watch.wrong, otherwise(err == nil, r.end, t.end()))
	if err != nil {
		err = fmt.Errorf("%w; on the way there was\n%s", err, strings.Join(t.log, "\n"))
	}
	t.clear()
	r.count(at, f, came, err)
	return err
}

func (r *templateRow) close() error {
	var err error
	// What is killed while it imports may have been about to log in once more.
	if left := r.vcenter.Sessions(); left > 2*r.abandoned {
		err = fmt.Errorf("%d sessions are left of %d processes that could end none", left, r.abandoned)
	}
	if open := r.vcenter.OpenLeases(); open != 0 {
		err = errors.Join(err, fmt.Errorf("%d leases are open", open))
	}
	return err
}

// templateTrial is a VSphereTemplate with a folder of its own, and what is not its own beside that.
type templateTrial struct {
	*templateRow
	key     types.NamespacedName
	folder  string
	clones  string
	foreign map[string]vcsim.State
	skipped atomic.Int64 // How much of the time nobody has waited for.
	watch   watch
	cloning sync.Mutex // Held by the customer.
	log     []string
}

func (r *templateRow) newTrial(ctx context.Context) (*templateTrial, error) {
	nth := r.trials.Add(1)
	r.vcenter.SetDatastore(room, room, vim.DatastoreSummaryMaintenanceModeStateNormal) // the simulator gives none of it back
	t := &templateTrial{templateRow: r, key: types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("t-%d", nth)}, foreign: map[string]vcsim.State{}}
	t.folder, t.clones = "/DC0/vm/"+t.key.Name, "/DC0/vm/clones-"+t.key.Name
	elsewhere := "/DC0/vm/elsewhere-" + t.key.Name
	for _, folder := range []string{t.folder, t.clones, elsewhere} {
		r.vcenter.AddFolder(folder)
	}
	for _, foreign := range []string{path.Join(elsewhere, image), path.Join(elsewhere, image+"-1"), path.Join(t.folder, "theirs")} {
		at, err := r.vcenter.AddTemplate(fmt.Sprintf("%s-%s-%s", path.Base(path.Dir(foreign)), path.Base(foreign), t.key.Name))
		if err != nil {
			return nil, err
		}
		r.vcenter.Rename(r.vcenter.Move(at, path.Dir(foreign)), path.Base(foreign))
		t.foreign[foreign] = r.vcenter.State(foreign)
	}
	return t, t.declare(ctx)
}

// declare makes the VSphereTemplate with the releases that it has had.
func (t *templateTrial) declare(ctx context.Context) error {
	o := &v1alpha1.VSphereTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.key.Namespace, Name: t.key.Name, UID: uuid.NewUUID(), Generation: 1, Finalizers: []string{v1alpha1.VSphereTemplateFinalizer},
		},
		Spec: v1alpha1.VSphereTemplateSpec{
			ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Name: image, Release: "none", KeepVersions: t.keep, Paused: true,
			FailureDomains: []v1alpha1.VSphereFailureDomain{{
				Name: "a", Folder: v1alpha1.InventoryPath(t.folder), ResourcePool: "/DC0/host/DC0_C0/Resources",
				Datastore: "/DC0/datastore/LocalDS_0", Network: "/DC0/network/VM Network",
			}},
		},
	}
	if err := t.api.Create(ctx, o); err != nil {
		return err
	}
	p := t.process()
	for _, release := range t.had {
		if err := t.ask(ctx, to(release)); err != nil {
			return err
		}
		if _, err := t.drive(ctx, p); err != nil {
			return err
		}
	}
	t.watch.begin(len(t.had) > 0 && t.begin != nil)
	return p.close()
}

// ask changes the VSphereTemplate as the API server would, or deletes it.
func (t *templateTrial) ask(ctx context.Context, begin func(*v1alpha1.VSphereTemplate)) error {
	o := &v1alpha1.VSphereTemplate{}
	if err := t.api.Get(ctx, t.key, o); err != nil {
		return err
	}
	if begin == nil {
		return t.api.Delete(ctx, o)
	}
	begin(o)
	o.Generation++
	o.Spec.Paused = false
	return t.api.Update(ctx, o)
}

// carryOut asks for the change, and has processes go on with it until nothing is left to do.
func (t *templateTrial) carryOut(ctx context.Context, p *templateProcess) (called []string, err error) {
	if err := t.ask(ctx, t.begin); err != nil {
		return nil, err
	}
	return t.drive(ctx, p)
}

// drive has one process after the other go on until all is done and a look shows nothing more to do. As soon as the name was on a whole
// template once, it is so after every pass that its process survives.
func (t *templateTrial) drive(ctx context.Context, p *templateProcess) (called []string, err error) {
	first := p
	defer func() {
		if p != first {
			err = errors.Join(err, p.close())
		}
	}()
	for range 4 * maxPasses {
		before := p.writes.Load()
		result, failed := p.r.Reconcile(ctx, ctrl.Request{NamespacedName: t.key})
		if failed != nil {
			t.log = append(t.log, failed.Error())
		}
		if err := p.rests(ctx); err != nil {
			return called, err
		}
		asked := p.faults.Called()
		called = append(called, asked...)
		if p.dead.Load() {
			p = t.process()
			continue
		}
		if err := t.watch.passed(t.whole()); err != nil {
			return called, err
		}
		over, err := t.over(ctx)
		if err != nil || over && failed == nil && p.writes.Load() == before && !slices.ContainsFunc(asked, begins) {
			return called, err
		}
		if result.RequeueAfter > time.Second/2 {
			t.cloning.Lock() // by then a clone that is under way has ended
			t.skipped.Add(int64(result.RequeueAfter))
			t.cloning.Unlock()
			if result.RequeueAfter > time.Minute {
				t.vcenter.ExpireLeases(t.folder)
			}
		}
	}
	return called, errors.New("it does not come to rest")
}

// over tells whether the VSphereTemplate says that nothing is left to do, or is gone.
func (t *templateTrial) over(ctx context.Context) (bool, error) {
	o := &v1alpha1.VSphereTemplate{}
	if err := t.api.Get(ctx, t.key, o); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	for _, c := range o.Status.Conditions {
		t.log = append(t.log, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
	}
	d := o.Status.FailureDomains
	return len(d) == 1 && d[0].Step == v1alpha1.VSphereTemplateDone && o.Status.ObservedGeneration == o.Generation, nil
}

// whole tells whether the name is on a whole template.
func (t *templateTrial) whole() bool {
	state := t.vcenter.State(path.Join(t.folder, image))
	return state.Template && strings.HasSuffix(state.ExtraConfig[inventory.TemplateKey], " finished")
}

// end says what there is in the end, in words that are the same for every trial.
func (t *templateTrial) end() (lines []string) {
	var own []string
	for _, at := range t.vcenter.Machines() {
		state := t.vcenter.State(at)
		mark := strings.Fields(state.ExtraConfig[inventory.TemplateKey])
		if path.Dir(at) != t.folder || len(mark) < 7 {
			continue
		}
		own = append(own, path.Base(at)+"="+mark[2])
		if !state.Template || mark[6] != "finished" {
			lines = append(lines, fmt.Sprintf("%s is not whole", path.Base(at)))
		}
	}
	lines = append(lines, "the folder has "+strings.Join(own, " "))
	for at, was := range t.foreign {
		if now := t.vcenter.State(at); fmt.Sprint(now) != fmt.Sprint(was) {
			lines = append(lines, fmt.Sprintf("%s was %v and is %v", at, was, now))
		}
	}
	return lines
}

// clear takes away what the trial has left, so that the simulator has less to look at.
func (t *templateTrial) clear() {
	for _, at := range t.vcenter.Machines() {
		if _, is := t.foreign[at]; is || path.Dir(at) == t.clones || path.Dir(at) == t.folder {
			t.vcenter.Remove(at)
		}
	}
	t.seen.add(&t.watch)
}

// customer clones machines by the name of the template, one after the other, until it is told to stop.
func (t *templateTrial) customer() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		n := 0
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
			n++
			t.cloning.Lock()
			defer t.cloning.Unlock()
			to := fmt.Sprintf("%s/web-%d", t.clones, n)
			if !t.vcenter.CopyTo(path.Join(t.folder, image), to) {
				t.watch.free.Add(1)
				return false, nil
			}
			t.watch.cloned(t.vcenter.State(to))
			t.vcenter.Remove(to)
			return false, nil
		})
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// templateProcess is a manager of VSphereTemplates.
type templateProcess struct {
	*process
	r       *template.Reconciler
	fetched atomic.Int64 // How many imports are under way.
}

func (t *templateTrial) process() *templateProcess {
	p := &templateProcess{process: newProcess(t.api, nil, t.vcenter)}
	p.seen = func() { t.watch.look(t.whole()) }
	c := p.client(t.api)
	store := templatestore.New(p.server, func(context.Context, *v1alpha1.VSphereTemplate) error { return nil })
	p.r = &template.Reconciler{
		Client: c, Live: c, Events: &events.FakeRecorder{}, Poll: time.Millisecond,
		Now:    func() time.Time { return time.Now().Add(time.Duration(t.skipped.Load())) },
		Stores: func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error) { return store, nil },
		Fetch: func(context.Context, templates.Domain) (templates.Archive, error) {
			p.fetched.Add(1)
			return fetched{strings.NewReader(string(vcsim.OVA())), sync.OnceFunc(func() { p.fetched.Add(-1) })}, nil
		},
	}
	return p
}

// rests waits until no import is under way. One that has ended is closed.
func (p *templateProcess) rests(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return p.fetched.Load() == 0, nil
	})
}

// fetched is the OVA of every release.
type fetched struct {
	*strings.Reader
	closes func()
}

func (f fetched) Close() error {
	f.closes()
	return nil
}

// watch is what is seen of the name of a template during a change.
type watch struct {
	mu     sync.Mutex
	ever   bool // It was on a whole template once, and is to be so for ever.
	since  time.Time
	asked  int // How many requests there were since it is free.
	gap    sightings
	wrong  error
	free   atomic.Int64 // How often a customer found nothing.
	clones atomic.Int64
}

func (w *watch) begin(ever bool) { w.ever = ever; w.gap = sightings{} }

// look is called after every request.
func (w *watch) look(whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case whole && !w.since.IsZero():
		w.gap.note(time.Since(w.since), w.asked)
		w.since = time.Time{}
	case whole:
	case w.ever && w.since.IsZero():
		w.since, w.asked = time.Now(), 0
	case w.ever:
		w.asked++
	}
}

// passed is called after every pass.
func (w *watch) passed(whole bool) error {
	w.look(whole)
	if w.ever && !whole {
		return errors.New("after a pass the name is not on a whole template")
	}
	return nil
}

// cloned notes a machine that a customer has.
func (w *watch) cloned(state vcsim.State) {
	w.clones.Add(1)
	if mark := state.ExtraConfig[inventory.TemplateKey]; !strings.HasSuffix(mark, " finished") {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrong = fmt.Errorf("a machine was made from what is marked as %q", mark)
	}
}

// sightings sum up how the name of a template was free.
type sightings struct {
	mu       sync.Mutex
	gaps     int
	longest  time.Duration
	requests int
	clones   int64
	free     int64
}

func (s *sightings) note(gap time.Duration, requests int) {
	s.gaps++
	s.longest, s.requests = max(s.longest, gap), max(s.requests, requests)
}

func (s *sightings) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps += w.gap.gaps
	s.longest, s.requests = max(s.longest, w.gap.longest), max(s.requests, w.gap.requests)
	s.clones += w.clones.Load()
	s.free += w.free.Load()
}

func (s *sightings) String() string {
	return fmt.Sprintf("free %d times, for %s and %d requests at most; %d machines cloned by name, %d times nothing found",
		s.gaps, s.longest.Round(time.Microsecond), s.requests, s.clones, s.free)
}
