package vsphere

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template"
)

// leaseTold is how often vCenter is told how much of an import is done. It gives up on one of which it hears nothing for minutes.
const leaseTold = 2 * time.Second

// maxStandstill is how long nothing of a file may be taken before the import is given up.
const maxStandstill = 10 * time.Minute

// importing is an import under way.
type importing struct {
	store   *templateStore
	archive *ova
	spec    *types.VirtualMachineImportSpec
	files   []types.OvfFileItem // What vCenter wants uploaded.
	total   int64               // How large the OVA is, or these are together.
	domain  template.Domain
	at      *templatePlaces

	lease types.ManagedObjectReference
	sent  atomic.Int64
}

// carryOut makes the machine, and fills its disks. Whatever goes wrong, vCenter is told to give up.
func (i *importing) carryOut(ctx context.Context, progress func(percent int32)) (made types.ManagedObjectReference, err error) {
	err = i.call(ctx, func(ctx context.Context, c *vim25.Client) error {
		lease, err := object.NewResourcePool(c, i.at.pool).ImportVApp(ctx, i.spec, object.NewFolder(c, i.at.folder), object.NewHostSystem(c, i.at.host))
		if err == nil {
			i.lease = lease.Reference()
		}
		return err
	})
	if err != nil {
		return made, err
	}
	defer func() {
		if runtime.IsNotFound(err) { // with the session that began it
			err = runtime.NewUnavailable(err, "vCenter %s aborted the import", i.store.server.config.Name)
		}
		if err != nil {
			// The context may have ended. Of a lease that has been let go vCenter knows nothing any more, and one that it was not told of ends by
			// itself.
			_ = i.call(context.WithoutCancel(ctx), func(ctx context.Context, c *vim25.Client) error {
				return nfc.NewLease(c, i.lease).Abort(ctx, nil)
			})
		}
	}()
	info, err := i.ready(ctx)
	if err != nil {
		return made, err
	}
	uploads, err := i.uploads(ctx, info)
	if err != nil {
		return made, err
	}
	if err := i.fill(ctx, uploads, progress); err != nil {
		return made, err
	}
	if err := i.verify(ctx, uploads); err != nil {
		return made, err
	}
	return info.Entity, i.call(ctx, func(ctx context.Context, c *vim25.Client) error { return nfc.NewLease(c, i.lease).Complete(ctx) })
}

// call makes one request, in the time that one has.
func (i *importing) call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	return inTime(ctx, func(ctx context.Context) error {
		return i.store.server.call(ctx, func(c *vim25.Client) error { return request(ctx, c) })
	})
}

// ready waits until vCenter has made the machine, which takes long if its disks are zeroed before they are used.
func (i *importing) ready(ctx context.Context) (*types.HttpNfcLeaseInfo, error) {
	for waits := pauses(5*time.Millisecond, 2*time.Second); ; {
		var lease mo.HttpNfcLease
		err := i.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
			lease, err = nfc.NewLease(c, i.lease).Properties(ctx, "state", "info", "error")
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case lease.State == types.HttpNfcLeaseStateReady && lease.Info != nil:
			return lease.Info, nil
		case lease.Error != nil:
			return nil, i.store.server.translate(ctx, task.Error{LocalizedMethodFault: lease.Error})
		case lease.State != types.HttpNfcLeaseStateInitializing:
			return nil, runtime.NewUnavailable(nil, "vCenter %s aborted the import", i.store.server.config.Name)
		}
		if err := pause(ctx, waits); err != nil {
			return nil, i.store.server.translate(ctx, err)
		}
	}
}

// uploads tells what has to be sent where: every file that vCenter wants, once.
func (i *importing) uploads(ctx context.Context, info *types.HttpNfcLeaseInfo) (all []upload, err error) {
	devices := map[string]types.HttpNfcLeaseDeviceUrl{}
	for _, device := range info.DeviceUrl {
		devices[device.ImportKey] = device
	}
	for _, file := range i.files {
		device, is := devices[file.DeviceId]
		if !is {
			return nil, runtime.NewUnavailable(nil, "vCenter %s does not say where to upload %s", i.store.server.config.Name, shown(file.Path))
		}
		to := upload{name: file.Path, device: device, create: file.Create, written: &i.sent}
		err := i.call(ctx, func(_ context.Context, c *vim25.Client) (err error) {
			to.to, err = c.ParseURL(device.Url)
			return err
		})
		if err != nil || to.to.Scheme != "https" {
			return nil, runtime.NewUnavailable(withoutURL(err), "vCenter %s wants %s uploaded without TLS, or to an invalid URL",
				i.store.server.config.Name, shown(file.Path))
		}
		all = append(all, to)
	}
	return all, nil
}

// fill uploads the files, one after another, and tells how much is done.
func (i *importing) fill(ctx context.Context, uploads []upload, progress func(percent int32)) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	telling, told := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { i.tell(telling, giveUp, progress) })
	defer teller.Wait()
	defer told()
	// A read of the archive that waits for its server ends with the upload.
	defer context.AfterFunc(ctx, func() { _ = i.archive.archive.Close() })()
	return i.stream(ctx, uploads)
}

// stream uploads the files in the order in which they arrive, and reads the archive to its end, which verifies it.
func (i *importing) stream(ctx context.Context, uploads []upload) error {
	for {
		name, size, err := i.archive.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if cause := context.Cause(ctx); cause != nil {
			err = i.store.server.translate(ctx, cause)
		}
		if err != nil {
			return err
		}
		n := slices.IndexFunc(uploads, func(u upload) bool { return u.name == name })
		if n < 0 {
			continue
		}
		if err := i.roomFor(room{thick: i.sent.Load() + size}); err != nil {
			return err
		}
		if err := i.store.server.send(ctx, uploads[n], i.archive.files, size); err != nil {
			return err
		}
	}
	if err := i.archive.complete(); err != nil {
		return err
	}
	for _, to := range uploads {
		if _, is := i.archive.sizes[to.name]; !is {
			return notOVA(nil, "vCenter asks for the file %s, which the OVA does not have", shown(to.name))
		}
	}
	return nil
}

// tell tells vCenter how much is done, until ctx ends, and gives up if vCenter has, or if nothing goes on.
func (i *importing) tell(ctx context.Context, giveUp context.CancelCauseFunc, progress func(percent int32)) {
	ticks := time.NewTicker(i.store.told)
	defer ticks.Stop()
	for last, since := int64(0), time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		sent := i.sent.Load()
		if sent != last {
			last, since = sent, time.Now()
		}
		server := i.store.server
		if time.Since(since) > maxStandstill {
			giveUp(runtime.NewUnavailable(nil, "the upload to the host that vCenter %s names has stalled", server.config.Name))
			return
		}
		done := int32(100)
		if i.total > 0 {
			done = int32(min(100*sent/i.total, 100))
		}
		progress(done)
		err := i.call(ctx, func(ctx context.Context, c *vim25.Client) error { return nfc.NewLease(c, i.lease).Progress(ctx, done) })
		if err != nil && !runtime.IsUnavailable(err) { // what is not answered may be so the next time
			giveUp(err)
			return
		}
	}
}

// verify compares how much of each file vCenter says that it has with how much there was, where it says so.
func (i *importing) verify(ctx context.Context, uploads []upload) error {
	var manifest []types.HttpNfcLeaseManifestEntry
	err := i.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		manifest, err = nfc.NewLease(c, i.lease).GetManifest(ctx)
		return err
	})
	if runtime.IsInvalidState(err) { // not every version has one for an import
		return nil
	}
	if err != nil {
		return err
	}
	has := map[string]int64{}
	for _, entry := range manifest {
		has[entry.Key] = entry.Size
	}
	for _, to := range uploads {
		if got := has[to.device.Key]; got != 0 && got != i.archive.sizes[to.name] {
			return runtime.NewUnavailable(nil, "vCenter %s has only a part of %s after its upload", i.store.server.config.Name, shown(to.name))
		}
	}
	return nil
}
