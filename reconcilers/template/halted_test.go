package template

import (
	"context"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// A halted store shows what there is, and changes nothing.
func TestHaltedStore(t *testing.T) {
	f := newFolders()
	f.add(folder, "", templates.Item{Name: name})
	s := templates.Halted(store{f, func(do func() error) error { return do() }}, func(context.Context) error { return runtime.ErrReadOnly })
	d := templates.Domain{Owner: "owner", Domain: &v1alpha1.VSphereFailureDomain{Name: "a", Folder: folder}}
	if v, err := s.Look(t.Context(), d); err != nil || !v.Others[name] {
		t.Errorf("got %+v, %v", v, err)
	}
	_, imported := s.Import(t.Context(), d, templates.Import{Name: "x"}, nil)
	_, finished := s.Finish(t.Context(), d, templates.Item{})
	_, renamed := s.Rename(t.Context(), d, templates.Item{}, "x")
	for what, err := range map[string]error{
		"Import": imported, "Finish": finished, "Rename": renamed,
		"Replace": s.Replace(t.Context(), d, templates.Item{}, "x", templates.Item{}), "Destroy": s.Destroy(t.Context(), d, templates.Item{}),
	} {
		if !runtime.IsReadOnly(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := f.describe(folder); got != name+"=!" {
		t.Errorf("the folder has %s", got)
	}
}
