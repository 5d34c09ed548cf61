package template

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A halted store shows what there is, and changes nothing.
func TestHaltedStore(t *testing.T) {
	f := newFolders()
	f.add(folder, "", Item{Name: name})
	s := Halted(store{f, func(do func() error) error { return do() }}, runtime.ErrReadOnly)
	d := Domain{Owner: "owner", Domain: &v1alpha1.VSphereFailureDomain{Name: "a", Folder: folder}}
	if v, err := s.Look(t.Context(), d); err != nil || !v.Others[name] {
		t.Errorf("got %+v, %v", v, err)
	}
	_, imported := s.Import(t.Context(), d, Import{Name: "x"}, nil)
	_, finished := s.Finish(t.Context(), d, Item{})
	_, renamed := s.Rename(t.Context(), d, Item{}, "x")
	for what, err := range map[string]error{
		"Import": imported, "Finish": finished, "Rename": renamed,
		"Replace": s.Replace(t.Context(), d, Item{}, "x", Item{}), "Destroy": s.Destroy(t.Context(), d, Item{}),
	} {
		if !runtime.IsReadOnly(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := f.describe(folder); got != name+"=!" {
		t.Errorf("the folder has %s", got)
	}
}
