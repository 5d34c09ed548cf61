package template

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
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// leaseReportPeriod is the interval of progress reports. vCenter aborts a lease after minutes without one.
const leaseReportPeriod = 2 * time.Second

// maxStandstill is how long an upload may make no progress before the import is aborted.
const maxStandstill = 10 * time.Minute

type importing struct {
	store   *Store
	archive *ova
	spec    *types.VirtualMachineImportSpec
	files   []types.OvfFileItem // files that vCenter wants uploaded
	total   int64               // size of the OVA, or of these files together
	domain  templates.Domain
	at      *placement

	lease types.ManagedObjectReference
	sent  atomic.Int64
}

// carryOut creates the machine and uploads its disks. After any error it aborts the lease.
func (i *importing) carryOut(ctx context.Context, progress func(percent int32)) (made types.ManagedObjectReference, err error) {
	err = i.call(ctx, func(ctx context.Context, c *vim25.Client) error {
		lease, err := object.NewResourcePool(c, i.at.Pool).ImportVApp(ctx, i.spec, object.NewFolder(c, i.at.folder), object.NewHostSystem(c, i.at.host))
		if err == nil {
			i.lease = lease.Reference()
		}
		return err
	})
	if err != nil {
		return made, err
	}
	defer func() {
		if runtime.IsNotFound(err) { // with the session that created it
			err = runtime.NewUnavailable(err, "vCenter %s aborted the import", i.store.Config.Name)
		}
		if err != nil {
			// The context may have ended. An error is ignored: the lease is gone already, or expires by itself.
			_ = i.call(context.WithoutCancel(ctx), func(ctx context.Context, c *vim25.Client) error {
				return nfc.NewLease(c, i.lease).Abort(ctx, nil)
			})
		}
	}()
	info, err := i.ready(ctx)
	if err != nil {
		return made, err
	}
	uploads, err := i.uploads(info)
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

func (i *importing) call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	return inTime(ctx, func(ctx context.Context) error {
		return i.store.Call(ctx, func(c *vim25.Client) error { return request(ctx, c) })
	})
}

// ready waits until vCenter has created the machine, which takes long if its disks are zeroed.
func (i *importing) ready(ctx context.Context) (info *nfc.LeaseInfo, err error) {
	err = i.store.Call(ctx, func(c *vim25.Client) (err error) {
		info, err = nfc.NewLease(c, i.lease).Wait(ctx, i.files)
		return err
	})
	return info, err
}

// uploads returns the upload for every file that vCenter wants.
func (i *importing) uploads(info *nfc.LeaseInfo) (all []upload, err error) {
	for _, file := range i.files {
		n := slices.IndexFunc(info.Items, func(item nfc.FileItem) bool { return item.DeviceId == file.DeviceId })
		if n < 0 {
			return nil, runtime.NewUnavailable(nil, "vCenter %s does not say where to upload %s", i.store.Config.Name, session.Shown(file.Path))
		}
		item := info.Items[n]
		if item.URL.Scheme != "https" {
			return nil, runtime.NewUnavailable(nil, "vCenter %s wants %s uploaded without TLS", i.store.Config.Name, session.Shown(file.Path))
		}
		device := info.DeviceUrl[slices.IndexFunc(info.DeviceUrl, func(d types.HttpNfcLeaseDeviceUrl) bool { return d.ImportKey == item.DeviceId })]
		all = append(all, upload{FileItem: item, device: device, written: &i.sent})
	}
	return all, nil
}

// fill uploads the files one after another and reports the progress.
func (i *importing) fill(ctx context.Context, uploads []upload, progress func(percent int32)) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	reporting, stop := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() { i.report(reporting, giveUp, progress) })
	defer reporter.Wait()
	defer stop()
	// A read of the archive that waits for its server ends with the upload.
	defer context.AfterFunc(ctx, func() { _ = i.archive.archive.Close() })()
	return i.stream(ctx, uploads)
}

// stream uploads the files in the order of the archive, and reads it to its end, which verifies it.
func (i *importing) stream(ctx context.Context, uploads []upload) error {
	for {
		name, size, err := i.archive.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if cause := context.Cause(ctx); cause != nil {
			err = i.store.Translate(ctx, cause)
		}
		if err != nil {
			return err
		}
		n := slices.IndexFunc(uploads, func(u upload) bool { return u.Path == name })
		if n < 0 {
			continue
		}
		if err := i.roomFor(inventory.Space{Thick: i.sent.Load() + size}); err != nil {
			return err
		}
		if err := send(ctx, i.store.Server, uploads[n], i.archive.files, size); err != nil {
			return err
		}
	}
	if err := i.archive.complete(); err != nil {
		return err
	}
	for _, to := range uploads {
		if _, is := i.archive.sizes[to.Path]; !is {
			return notOVA(nil, "vCenter asks for the file %s, which the OVA does not have", session.Shown(to.Path))
		}
	}
	return nil
}

// report reports the progress to vCenter until ctx ends, and cancels the import if vCenter has aborted the lease or
// nothing progresses.
func (i *importing) report(ctx context.Context, giveUp context.CancelCauseFunc, progress func(percent int32)) {
	ticks := time.NewTicker(i.store.ReportPeriod)
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
		server := i.store.Server
		if time.Since(since) > maxStandstill {
			giveUp(runtime.NewUnavailable(nil, "the upload to the host that vCenter %s names has stalled", server.Config.Name))
			return
		}
		done := int32(100)
		if i.total > 0 {
			done = int32(min(100*sent/i.total, 100))
		}
		progress(done)
		err := i.call(ctx, func(ctx context.Context, c *vim25.Client) error { return nfc.NewLease(c, i.lease).Progress(ctx, done) })
		if err != nil && !runtime.IsUnavailable(err) { // an unanswered request may succeed the next time
			giveUp(err)
			return
		}
	}
}

// verify compares the number of bytes that vCenter received of each file with what was sent, if vCenter reports it.
func (i *importing) verify(ctx context.Context, uploads []upload) error {
	var manifest []types.HttpNfcLeaseManifestEntry
	err := i.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		manifest, err = nfc.NewLease(c, i.lease).GetManifest(ctx)
		return err
	})
	if runtime.IsInvalidState(err) { // not every version has a manifest for an import
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
		if got := has[to.device.Key]; got != 0 && got != i.archive.sizes[to.Path] {
			return runtime.NewUnavailable(nil, "vCenter %s has only a part of %s after its upload", i.store.Config.Name, session.Shown(to.Path))
		}
	}
	return nil
}
