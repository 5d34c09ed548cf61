//go:build cdi

package cdi

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// The real controllers of CDI and CSI import images, copy them, and delete them.
func TestCDI(t *testing.T) {
	s := newSite(t)
	t.Run("import", func(t *testing.T) { s.in(t).imported() })
	t.Run("sources", func(t *testing.T) { s.in(t).sources() })
	t.Run("deletions", func(t *testing.T) { s.in(t).deletions() })
	t.Run("refused", func(t *testing.T) { s.in(t).refused() })
	t.Run("allowed", func(t *testing.T) { s.in(t).allowed() })
	t.Run("machines", func(t *testing.T) { s.in(t).machines() })
	t.Run("restarts", func(t *testing.T) { s.in(t).restarts() })
	t.Run("deaths", func(t *testing.T) { s.in(t).deaths() })
}

// imported has an image imported and a disk made of it. Both have the bytes of the source.
func (s *site) imported() {
	s.namespace("first")
	ubuntu := image("first", "ubuntu")
	ubuntu.Spec.Checksum = checksumOf(data("first"))
	s.Must(s.Create(s.Context(), ubuntu))
	s.shows(ubuntu, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if !bytes.Equal(s.claimed("first", ubuntu.Status.Claim.Name), data("first")) {
		s.Error("the claim of the image has other data than the source")
	}
	s.disk("first", "data", "ubuntu")
	if !bytes.Equal(s.copied("first"), data("first")) {
		s.Error("the claim of the disk has other data than the source")
	}
}

// restarts kills cdi-controller while images are imported, and while one is deleted: nothing is lost, and nothing is left.
func (s *site) restarts() {
	images := []*v1alpha1.VMDiskImage{}
	for n := range 4 {
		ns := fmt.Sprintf("restart-%d", n)
		s.namespace(ns)
		images = append(images, image(ns, "ubuntu"))
		s.Must(s.Create(s.Context(), images[n]))
		if n == 3 { // the other ones are in the middle of it
			s.shows(images[n], v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		}
	}
	s.Must(s.running.Kill())
	s.Must(s.Delete(s.Context(), images[3]))
	s.controller()
	for _, i := range images[:3] {
		s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		if !bytes.Equal(s.claimed(i.Namespace, i.Status.Claim.Name), data(i.Namespace)) || i.Status.Attempt.Number != 1 {
			s.Errorf("image %s has other data, or was imported again: %+v", i.Namespace, i.Status)
		}
		s.Must(s.Delete(s.Context(), i))
	}
	for _, i := range images {
		s.Eventually("the image is gone", func() bool { return !s.read(i) })
		s.empty(i.Namespace)
	}
}

// TestMain has more parts run at a time than there are processors: they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	step.Parallel(10)
	os.Exit(m.Run())
}
