package conformance

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// diskSourced holds that a disk is never made empty that has a source, and says what it was made from, whatever it is told later.
func diskSourced(s *suite) {
	d, source := s.Disk(s.T, "sourced"), s.Source(s.T)
	d.Spec = d.Spec.DeepCopy()
	d.Spec.Source = &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: "image"}}
	for range 2 {
		_, err := s.tryEnsureDisk(d)
		s.wants(runtime.IsInvalidState, err, "InvalidState", "ensuring a disk without its source")
		if seen := s.observeDisk(d); seen.Exists {
			s.Fatalf("a disk was made without its source: %+v", seen)
		}
	}
	d.Source = &source
	for range steps {
		id, err := s.tryEnsureDisk(d)
		s.must(err, "ensuring the disk")
		if d.ID = id; id != "" {
			break
		}
	}
	other := source
	other.Image += "-other"
	for _, told := range []*runtime.DiskSource{&other, nil} {
		d.Source = told
		if id, err := s.tryEnsureDisk(d); err != nil || id != d.ID || id == "" {
			s.Errorf("the disk %q was ensured as %q, with error %v", d.ID, id, err)
		}
		if seen := s.observeDisk(d); !seen.Exists || seen.Image != source.Image {
			s.Errorf("the disk made from image %s is seen as %+v", source.Image, seen)
		}
	}
	if empty := s.madeDisk("unsourced"); s.observeDisk(empty).Image != "" {
		s.Error("an empty disk has an image")
	}
}
