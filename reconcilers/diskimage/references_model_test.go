package diskimage

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/mortal"
)

// model is an image and disks that use it, with two processes that take themselves for the leader, die at any call and pass in the middle
// of each other's passes, and with a cache that is not current.
type model struct {
	*rapid.T
	*world
	processes [2]mortal.Process
	// copies are the disks that have read the image live after they persisted its UID: they copy its data, or have.
	copies map[types.UID]*v1alpha1.VirtualDisk
}

func (m *model) pass() {
	p := &m.processes[rapid.IntRange(0, 1).Draw(m.T, "process")]
	if rapid.IntRange(0, 2).Draw(m.T, "dies") == 0 {
		p.Die(rapid.IntRange(1, 10).Draw(m.T, "at"), rapid.Bool().Draw(m.T, "after"))
	}
	if rapid.Bool().Draw(m.T, "meanwhile") {
		happens := rapid.SampledFrom([]func(){m.use, m.use, m.read, m.release, m.remove, m.other}).Draw(m.T, "what")
		p.Before(rapid.IntRange(1, 10).Draw(m.T, "when"), happens)
	}
	_, _ = m.passBy(p)
	p.Begin()
	m.check()
}

// other has the other process pass in the middle of a pass.
func (m *model) other() {
	for i := range m.processes {
		if m.processes[i].Rests() {
			_, _ = m.passBy(&m.processes[i])
			m.processes[i].Begin()
			return
		}
	}
}

// use has a disk persist which image it uses.
func (m *model) use() {
	image := m.image()
	if image == nil {
		return
	}
	m.disk(rapid.SampledFrom([]string{namespace, "elsewhere"}).Draw(m.T, "namespace"), string(uuid.NewUUID()), nil)
}

// read has a disk read the image live, and copy its data if it may.
func (m *model) read() {
	d := m.draw()
	if d == nil {
		return
	}
	if image := m.image(); image != nil && image.UID == d.Status.Image.UID && image.DeletionTimestamp.IsZero() && image.Status.Phase == v1alpha1.VMDiskImageReady {
		m.copies[d.UID] = d
	}
}

// draw returns a disk, nil if there is none.
func (m *model) draw() *v1alpha1.VirtualDisk {
	all := m.disks()
	if len(all) == 0 {
		return nil
	}
	return &all[rapid.IntRange(0, len(all)-1).Draw(m.T, "disk")]
}

func (m *model) disks() []v1alpha1.VirtualDisk {
	var list v1alpha1.VirtualDiskList
	m.must(m.List(m.world.Context(), &list))
	return list.Items
}

// users counts the disks that use the image. Others persisted an earlier image of its name too late, and have not found out yet.
func (m *model) users(image *v1alpha1.VMDiskImage) (n int32) {
	for _, d := range m.disks() {
		if d.Status.Image.Is(image) {
			n++
		}
	}
	return n
}

// release deletes a disk.
func (m *model) release() {
	if d := m.draw(); d != nil {
		m.must(m.Delete(m.world.Context(), d))
		delete(m.copies, d.UID)
	}
}

// remove deletes the image.
func (m *model) remove() {
	if image := m.image(); image != nil {
		m.must(m.Delete(m.world.Context(), image))
	}
}

// restore makes an image of the same name if there is none, and imports it.
func (m *model) restore() {
	if m.image() == nil && m.names() == "" {
		m.make(modelled())
		m.bring()
	}
}

// check holds what is there against what may never happen.
func (m *model) check() {
	for _, d := range m.copies {
		image := m.image()
		if image == nil || image.UID != d.Status.Image.UID || len(m.snapshots()) != 1 || len(m.claims()) != 1 {
			m.Fatalf("disk %s copies from an image of which is left: %+v, %s", d.Name, image, m.names())
		}
	}
}

func modelled() *v1alpha1.VMDiskImage {
	i := imageOfTests()
	i.Spec.DeletionPolicy = v1alpha1.VMDiskImageDeleteAfterUnreferenced
	i.Spec.TTLAfterUnreferenced = &metav1.Duration{Duration: time.Hour}
	return i
}

// bring has the image imported.
func (m *model) bring() {
	stale := m.stale
	m.stale = nil
	m.succeed()
	m.shoot(usableSnapshot)
	m.stale = stale
}

// end releases everything, and looks whether it ends.
func (m *model) end() {
	m.stale = nil
	if image := m.image(); image != nil && image.DeletionTimestamp.IsZero() && m.users(image) > 0 {
		for range 12 {
			_, _ = m.passBy(&m.processes[0])
		}
		if m.image() == nil || m.image().Status.UnreferencedSince != nil || m.image().Status.References.Count != m.users(image) {
			m.Fatalf("an image with %d users is %+v", m.users(image), m.image())
		}
	}
	for _, d := range m.disks() {
		m.must(m.Delete(m.world.Context(), &d))
	}
	m.copies = nil
	for range 3 {
		for range 12 {
			_, _ = m.passBy(&m.processes[0])
		}
		m.now = m.now.Add(2 * time.Hour)
	}
	if m.image() != nil || m.names() != "" {
		m.Fatalf("it never ends: %+v, %s", m.image(), m.names())
	}
}

// Data is never deleted under a disk that copies it, and everything ends.
func TestReferencesModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{T: rt, world: newWorld(t), copies: map[types.UID]*v1alpha1.VirtualDisk{}}
		m.make(modelled())
		m.bring()
		rt.Repeat(map[string]func(*rapid.T){
			"pass": func(*rapid.T) { m.pass() }, "pass again": func(*rapid.T) { m.pass() }, "and again": func(*rapid.T) { m.pass() },
			"use": func(*rapid.T) { m.use() }, "read": func(*rapid.T) { m.read() }, "release": func(*rapid.T) { m.release() },
			"remove": func(*rapid.T) { m.remove() }, "restore": func(*rapid.T) { m.restore() },
			"time": func(*rapid.T) { m.now = m.now.Add(40 * time.Minute) },
			"freeze": func(*rapid.T) {
				if m.stale == nil {
					m.stale = &v1alpha1.VirtualDiskList{Items: m.disks()}
				}
			},
			"thaw": func(*rapid.T) { m.stale = nil },
			"fails": func(*rapid.T) {
				m.refused["list VirtualDisk"] = apierrors.NewTimeoutError("etcd", 1)
				_, _ = m.passBy(&m.processes[0])
				delete(m.refused, "list VirtualDisk")
			},
		})
		m.end()
	})
}
