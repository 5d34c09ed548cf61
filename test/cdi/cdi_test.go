//go:build cdi

package cdi

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/step"
)

// The real controllers of CDI and CSI import images, copy them, and delete them.
func TestCDI(t *testing.T) {
	s := newSite(t)
	t.Run("import", func(t *testing.T) { s.in(t).imported() })
	t.Run("sources", func(t *testing.T) { s.in(t).sources() })
	t.Run("deletions", func(t *testing.T) { s.in(t).deletions() })
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

// TestMain has more parts run at a time than there are processors: they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	step.Parallel(10)
	os.Exit(m.Run())
}
