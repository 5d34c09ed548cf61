package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

// tries imports what does not become an item, and gives its error.
func (w *templateWorld) tries(ctx context.Context, what templates.Import) error {
	w.Helper()
	item, err := w.store.Import(ctx, w.d, what, func(int32) {})
	if err == nil {
		w.Errorf("it was imported: %+v", item)
	}
	w.shows()
	if open := w.OpenLeases(); open != 0 {
		w.Errorf("%d leases are open", open)
	}
	return err
}

// What cannot be imported because of what it is says so, and leaves nothing.
func TestBadOVAs(t *testing.T) {
	race.Skip(t)
	w := newTemplates(t)
	good := descriptor("nat")
	disk := entry("disk.vmdk", content)
	of := func(text string) []byte { return tarOf(entry("image.ovf", text), disk) }
	many := make([]vcsim.File, 65)
	many[0] = entry("image.ovf", good)
	for i := range many[1:] {
		many[i+1].Name = strings.Repeat("x", i+1)
	}
	whole := of(good)
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"nothing":                 {nil, "the OVA has no descriptor (a file that ends in .ovf)"},
		"no archive":              {[]byte(strings.Repeat("<html>", 512)), "it is not an OVA (a tar archive), or it is damaged"},
		"truncated":               {whole[:len(whole)-len(content)/2], "the OVA ends too early"},
		"no descriptor":           {tarOf(), "the OVA has no descriptor (a file that ends in .ovf)"},
		"another file first":      {tarOf(disk, entry("image.ovf", good)), `the first file of the OVA is "disk.vmdk", but must be the descriptor (a file that ends in .ovf)`},
		"two descriptors":         {tarOf(entry("a.ovf", good), entry("b.ovf", good)), `the OVA has a second descriptor, "b.ovf"`},
		"two files of one name":   {tarOf(entry("a.ovf", good), disk, disk), `the OVA has two files "disk.vmdk"`},
		"many files":              {tarOf(many...), "the OVA has more than 64 files"},
		"a long name":             {tarOf(entry(strings.Repeat("x", 256), "")), "the OVA has a file name of 256 characters, but at most 255 are supported"},
		"a large descriptor":      {of(strings.Repeat(" ", 4<<20) + good), `the descriptor "image.ovf" is larger than 4 MiB`},
		"no XML":                  {of("machine"), "the descriptor of the OVA is not XML, or not an OVF envelope"},
		"a deep descriptor":       {of("<Envelope>" + strings.Repeat("<a>", 1<<20)), "the descriptor of the OVA is not XML, or not an OVF envelope"},
		"no machine":              {of("<Envelope/>"), "the OVA does not describe a machine with its hardware"},
		"no hardware":             {of("<Envelope><VirtualSystem/></Envelope>"), "the OVA does not describe a machine with its hardware"},
		"machines":                {of(strings.ReplaceAll(good, "VirtualSystem ", "VirtualSystemCollection ")), ""},
		"no network":              {of(descriptor()), "the OVA has 0 networks, but a template has only the network of its failure domain"},
		"two networks":            {of(descriptor("a", "b")), "the OVA has 2 networks, but a template has only the network of its failure domain"},
		"no disk":                 {tarOf(entry("image.ovf", good)), `the descriptor names the file "disk.vmdk", which the OVA does not have`},
		"a file of this computer": {of(strings.Replace(good, `"disk.vmdk"`, `"/etc/passwd"`, 1)), `the descriptor names the file "/etc/passwd", which the OVA does not have`},
		"compressed":              {of(strings.Replace(good, `"disk.vmdk"`, `"disk.vmdk" ovf:compression="gzip"`, 1)), `the file "disk.vmdk" is compressed or in chunks, which cannot be imported`},
		"in chunks":               {of(strings.Replace(good, `"disk.vmdk"`, `"disk.vmdk" ovf:chunkSize="7"`, 1)), `the file "disk.vmdk" is compressed or in chunks, which cannot be imported`},
		"unknown hardware": {
			of(strings.Replace(good, "<rasd:ResourceType>3<", "<rasd:ResourceType>99<", 1)),
			"vCenter lab cannot import the OVA: unsupported resource type: 99",
		},
	} {
		t.Run(name, func(t *testing.T) {
			what := release("1")
			what.Archive = archive{content: c.content}.open()
			err := w.in(t).tries(t.Context(), what)
			if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.source: "+c.want) {
				t.Errorf("got error %v, want %s", err, c.want)
			}
		})
	}
}

// A place that is missing, or will not do, is named by its field.
func TestImportWithoutAPlace(t *testing.T) {
	w := newTemplates(t)
	of := "spec.failureDomains[a]."
	for name, c := range map[string]struct {
		change func(d *v1alpha1.VSphereFailureDomain)
		want   string
	}{
		"folder":          {func(d *v1alpha1.VSphereFailureDomain) { d.Folder = "/DC0/vm/none" }, "folder: vCenter lab has no folder at /DC0/vm/none, or does not show it"},
		"not a folder":    {func(d *v1alpha1.VSphereFailureDomain) { d.Folder = "/DC0/host" }, "folder: the folder /DC0/host is not one for machines"},
		"pool":            {func(d *v1alpha1.VSphereFailureDomain) { d.ResourcePool = "/DC0/host/none" }, "resourcePool: vCenter lab has no resource pool, cluster or host at /DC0/host/none, or does not show it"},
		"datastore":       {func(d *v1alpha1.VSphereFailureDomain) { d.Datastore = "/DC0/datastore/none" }, "datastore: vCenter lab has no datastore at /DC0/datastore/none, or does not show it"},
		"network":         {func(d *v1alpha1.VSphereFailureDomain) { d.Network = "/DC0/network/none" }, "network: vCenter lab has no network at /DC0/network/none, or does not show it"},
		"network of none": {func(d *v1alpha1.VSphereFailureDomain) { d.Network = "/DC0/vm" }, "network: vCenter lab has no network at /DC0/vm, or does not show it"},
	} {
		domain := *w.d.Domain
		c.change(&domain)
		d := w.d
		d.Domain = &domain
		_, err := w.store.Import(t.Context(), d, release("1"), func(int32) {})
		if !runtime.IsInvalidSpec(err) || runtime.Message(err) != of+c.want {
			t.Errorf("%s: got error %v, want %s", name, err, c.want)
		}
	}
	w.SetDatastore(1<<10, 1<<40, "normal")
	if err := w.tries(t.Context(), release("1")); !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), of+"datastore: ") {
		t.Errorf("a full datastore: got error %v", err)
	}
	w.SetDatastore(1<<40, 1<<40, "inMaintenance")
	want := of + "datastore: the datastore /DC0/datastore/LocalDS_0 is in maintenance mode"
	if err := w.tries(t.Context(), release("1")); !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
		t.Errorf("a datastore in maintenance: got error %v", err)
	}
	w.SetDatastore(1<<40, 1<<40, "normal")
	for _, host := range w.Hosts() {
		w.SetHost(host, true, true)
	}
	want = of + "resourcePool: no host is connected, not in maintenance mode, and has the datastore and the network of the template"
	if err := w.tries(t.Context(), release("1")); !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
		t.Errorf("hosts in maintenance: got error %v", err)
	}
}

// An import that breaks off leaves nothing behind where vCenter can be told so.
func TestImportThatBreaksOff(t *testing.T) {
	w := newTemplates(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("the disk of this computer is broken")
	path := folder + "/ubuntu-new-1"
	for name, c := range map[string]struct {
		ctx     context.Context
		archive archive
		is      func(error) bool
	}{
		"it is withdrawn":        {ctx, archive{before: cancel}, runtime.IsUnavailable},
		"the archive fails":      {t.Context(), archive{fails: broken}, func(err error) bool { return errors.Is(err, broken) }},
		"the machine is removed": {t.Context(), archive{before: func() { w.Remove(path) }}, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			what := release("1")
			c.archive.content = image().content
			what.Archive = c.archive.open()
			err := w.in(t).tries(c.ctx, what)
			if !c.is(err) || strings.Contains(err.Error(), "/nfc/") {
				t.Errorf("got error %v", err)
			}
		})
	}
	what := release("1")
	wrong := runtime.NewInvalidSpec(nil, "spec.source.sha256: the OVA has another")
	for range 2 { // the content arrives whole, and is not the one of the source
		what.Archive = archive{content: image().content, wrong: wrong}.open()
		if err := w.tries(t.Context(), what); !errors.Is(err, wrong) {
			t.Errorf("got error %v", err)
		}
	}
	w.LoseContent()
	err := w.tries(t.Context(), release("1"))
	if want := `vCenter lab has only a part of "disk.vmdk" after its upload`; !runtime.IsUnavailable(err) || runtime.Message(err) != want {
		t.Errorf("got error %v", err)
	}
}

// The files of an OVA are uploaded in the order that they have there, and its size need not be known: then what is uploaded is counted against
// the free space of the datastore.
func TestImportInTheOrderOfTheArchive(t *testing.T) {
	w := newTemplates(t)
	files := []vcsim.File{entry("image.ovf", descriptor("nat")), entry("disk.vmdk", content), entry("image.mf", "SHA256"), entry("notes.txt", "read me")}
	for i, order := range [][]int{{0, 1, 2, 3}, {0, 3, 2, 1}} {
		var all []vcsim.File
		for _, n := range order {
			all = append(all, files[n])
		}
		what := release(strconv.Itoa(i))
		what.Archive = archive{content: tarOf(all...), unsized: true}.open()
		_, err := w.store.Import(t.Context(), w.d, what, func(int32) {})
		w.Must(err)
	}
	w.clear()
	w.SetDatastore(int64(len(content))-1, 1<<30, "normal")
	what := release("2")
	what.Archive = archive{content: tarOf(entry("image.ovf", strings.Replace(descriptor("nat"), fmt.Sprintf("ovf:size=\"%d\"", len(content)), "", 1)), files[1]), unsized: true}.open()
	if err := w.tries(t.Context(), what); !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.failureDomains[a].datastore: ") {
		t.Errorf("a full datastore: got error %v", err)
	}
}

// A name that something else has is told, and left to it.
func TestImportUnderATakenName(t *testing.T) {
	w := newTemplates(t)
	w.imports("1")
	again := release("2")
	again.Name = "ubuntu-new-1"
	if _, err := w.store.Import(t.Context(), w.d, again, func(int32) {}); !isTaken(err) {
		t.Errorf("got error %v", err)
	}
	if items := w.look().Items; len(items) != 1 || items[0].Release != "1" {
		t.Errorf("the folder shows %+v", items)
	}
}

// Disks are laid out as they are wanted, and shown as they are.
func TestImportedDisks(t *testing.T) {
	w := newTemplates(t)
	for _, of := range []v1alpha1.VSphereDiskType{v1alpha1.VSphereDiskThin, v1alpha1.VSphereDiskThick, v1alpha1.VSphereDiskEagerZeroedThick} {
		what := release(strings.ToLower(string(of)))
		what.DiskType = of
		item, err := w.store.Import(t.Context(), w.d, what, func(int32) {})
		w.Must(err)
		if item.DiskType != of {
			t.Errorf("%s is shown as %s", of, item.DiskType)
		}
		w.Must(w.store.Destroy(t.Context(), w.d, item))
	}
}

// vCenter is told how much is done while it takes, and whoever has asked. One that knows nothing of the import any more ends it.
func TestImportTellsHowMuchIsDone(t *testing.T) {
	w := newTemplates(t)
	told := make(chan int32, 100)
	w.store = tellingStoreOf(w.runtime)
	what := release("1")
	what.Archive = archive{content: image().content, before: func() { <-told }}.open()
	_, err := w.store.Import(t.Context(), w.d, what, func(percent int32) {
		if percent < 0 || percent > 100 {
			t.Errorf("told %d", percent)
		}
		select {
		case told <- percent:
		default:
		}
	})
	w.Must(err)
	w.clear()
	w.faults.Refuse(&types.ManagedObjectNotFound{}, "HttpNfcLeaseProgress")
	what.Archive = archive{content: image().content, stalls: true}.open() // a read that waits ends with the upload
	if err := w.tries(t.Context(), what); !runtime.IsUnavailable(err) || !strings.Contains(err.Error(), "aborted the import") {
		t.Errorf("got error %v", err)
	}
}
