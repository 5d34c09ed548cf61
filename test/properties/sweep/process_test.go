//go:build !race

package sweep

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/disk"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	fcd "sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/step"
)

// errKilled is what everybody gets who asks something for a process that is no more.
var errKilled = errors.New("the process was killed")

// process is a manager: its reconcilers, which are driven by hand, and what they know the vCenter by.
type process struct {
	faults vcsim.Faults
	server *session.Server
	ops    *operation.Reconciler
	vms    *virtualmachine.Reconciler
	disks  *disk.Reconciler
	calls  calls

	seen func() // Called after every request, if it is set.

	writes atomic.Int64
	dying  atomic.Bool // It does not outlive the request that it is making.
	dead   atomic.Bool
}

// newProcess starts a manager.
func newProcess(api client.WithWatch, judge operation.Arbiter, vc *vcsim.VCenter) *process {
	p := &process{}
	var err error
	p.server, err = session.NewServer(session.Config{
		Name:        "lab",
		HungAfter:   time.Hour, // passes follow each other at once, and would all fall into the pause
		URL:         vc.URL(),
		CABundle:    vc.CABundle(),
		Credentials: func(context.Context) (*url.Userinfo, error) { return vc.User(), nil },
		Wrap:        func(next soap.RoundTripper) soap.RoundTripper { return &wire{p, p.faults.Wrap(next)} },
		WrapREST:    func(next http.RoundTripper) http.RoundTripper { return &wireREST{p, p.faults.WrapREST(next)} },
	})
	if err != nil {
		panic(err) // the vCenter gives no address of its own
	}
	limited := runtime.NewClient(fcd.New(p.server), runtime.Limits{Call: step.Patience}.Keep, p.calls.keep)
	runtimes := func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return limited, nil }
	c := p.client(api)
	driver := &drive.Driver{Client: c, Live: c, Locks: &claim.Locks{}, Runtimes: runtimes, Now: time.Now}
	p.ops = &operation.Reconciler{Driver: driver, Arbiter: judge, Events: &events.FakeRecorder{}}
	p.vms = &virtualmachine.Reconciler{Driver: driver, Events: &events.FakeRecorder{}}
	p.disks = &disk.Reconciler{
		Client: c, Live: c, Events: &events.FakeRecorder{}, Now: time.Now,
		Runtimes: func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return limited, nil },
	}
	return p
}

// client gives a client that dies with the process, of those verbs that the reconcilers use.
func (p *process) client(api client.WithWatch) client.Client {
	read := func(do func() error) error {
		if p.dead.Load() {
			return errKilled
		}
		return do()
	}
	write := func(do func() error) error {
		return read(func() error {
			p.writes.Add(1)
			return do()
		})
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return read(func() error { return c.List(ctx, list, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// pass has the reconcilers look at the machine and its disk, and tells whether they wrote anything and what was wrong.
func (p *process) pass(ctx context.Context, key types.NamespacedName) (wrote bool, err error) {
	before := p.writes.Load()
	_, first := p.ops.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	_, second := p.vms.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	_, third := p.disks.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: diskName}})
	return p.writes.Load() != before, errors.Join(first, second, third)
}

// close ends the process. One that was killed logs nobody out.
func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), step.Patience)
	defer cancel()
	if err := p.server.Close(ctx); !p.dead.Load() {
		return err
	}
	return nil
}

// wire is how the requests of a process reach the vCenter, and how its death is seen by them.
type wire struct {
	process *process
	next    soap.RoundTripper
}

// RoundTrip sends the request.
func (w *wire) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	if w.process.dead.Load() {
		return errKilled
	}
	return w.process.outlives(w.next.RoundTrip(ctx, req, res))
}

// outlives gives what the request ended with, if the process was there to see it.
func (p *process) outlives(err error) error {
	if p.seen != nil {
		p.seen()
	}
	if p.dying.Load() {
		p.dead.Store(true)
		return errKilled
	}
	return err
}

// wireREST is wire for the requests of the REST API.
type wireREST struct {
	process *process
	next    http.RoundTripper
}

// RoundTrip sends the request.
func (w *wireREST) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.process.dead.Load() {
		return nil, errKilled
	}
	res, err := w.next.RoundTrip(req)
	if err = w.process.outlives(err); err != nil && res != nil {
		_ = res.Body.Close()
		res = nil
	}
	return res, err
}
