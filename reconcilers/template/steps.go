package template

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// action is what is to be done next in a failure domain.
type action string

// The actions. Each is one change of the vCenter, but for replace, which is two renames, and remove, which is a rename and the end.
const (
	none     action = "none"     // The template is as it is wanted.
	hold     action = "hold"     // Something has to change first: step.why.
	fetch    action = "import"   // Nothing whole is there of what is wanted.
	finish   action = "finish"   // step.item was imported, and is no template yet.
	promote  action = "promote"  // step.item takes the template's name, which nothing has.
	replace  action = "replace"  // step.old gives the template's name to step.item, and is called step.name.
	inherit  action = "inherit"  // The items of the VSphereTemplate with the UID step.owner are taken over.
	put      action = "put"      // step.item is called step.name again.
	remove   action = "remove"   // step.item is destroyed.
	vanished action = "vanished" // Nothing is left.
)

// step is the next thing to do.
type step struct {
	do        action
	item, old *Item
	name      string
	owner     types.UID
	why       *refusal
}

// wanted is what a failure domain is to have.
type wanted struct {
	Mark
	object types.NamespacedName // the VSphereTemplate's
	// earlier says what becomes of what an earlier VSphereTemplate of that name has.
	earlier runtime.Earlier

	name   string // the template's
	keep   int    // how many of those that were replaced
	paused bool
	gone   bool   // nothing at all: the VSphereTemplate is being deleted, or has no such failure domain any more
	was    string // the MoRef of what had the name last, as the status has it
	// importing is what is being imported, if anything: nobody touches that.
	importing string
	// layout is how the disks of the present template are laid out, if there is one.
	layout v1alpha1.VSphereDiskType
	// overdue tells that the exchange of the names has waited long enough for machines that are being made: they know their template by its
	// reference, and its new name does them no harm.
	overdue bool
	// failed are the items that could not take the name just now, by their MoRefs: another one is to have it, if only for so long.
	failed map[string]bool
}

// The reasons of refusals are those of conditions.
const (
	foreignTemplate = string(v1alpha1.ReasonForeignTemplate)
	templateInUse   = string(v1alpha1.ReasonTemplateInUse)
)

// next says what to do, by what is in the folder and by what is wanted. It is the whole of what keeps a template whole:
//
//   - the name is never taken from a template before another whole one is there to take it;
//   - as soon as the name is found free, a whole template takes it: the one that is wanted if it is there, else the one that had it;
//   - what is partial, or left over, goes only while the name is on a whole template, or nothing whole is there at all;
//   - what is not ours is in the way, and stays.
//
// A process that dies between any two changes leaves a state of this table, and whoever comes next goes on from there.
func (w *wanted) next(v View) step {
	if w.gone {
		return w.vanish(v)
	}
	if owner := v.Earlier[w.name]; owner != "" {
		return w.unless(w.succeed(owner))
	}
	if v.Others[w.name] {
		return step{do: hold, why: refused(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it", w.name)}
	}
	present, fresh := find(v, w.named), find(v, w.fresh)
	switch {
	case present == nil && fresh != nil:
		return step{do: promote, item: fresh, name: w.name}
	case present == nil && w.last(v) != nil:
		return step{do: promote, item: w.last(v), name: w.name}
	case present != nil && present.Stage == Imported && w.is(present):
		return w.unless(step{do: finish, item: present})
	case present != nil && present.Stage != Whole:
		return w.unless(step{do: remove, item: present})
	case present != nil && w.is(present):
		return w.tidy(v, present)
	case fresh != nil:
		return w.unless(w.replace(v, present, fresh))
	}
	return w.unless(w.make(v))
}

// succeed takes over what an earlier VSphereTemplate of the same namespace and name has, if that was decided.
func (w *wanted) succeed(owner types.UID) step {
	if w.earlier == runtime.TakeOver {
		return step{do: inherit, owner: owner}
	}
	return step{do: hold, why: refused(string(v1alpha1.ReasonOwnedByAnother), "template %s in the folder is marked for %s with another UID, as after a restore, or in "+
		"another cluster. To use it: kubectl sallyport take-over svst %s -n %s. To create another one: rename or remove it in vCenter",
		w.name, w.object, w.object.Name, w.object.Namespace)}
}

// unless holds back, while the VSphereTemplate is paused, what nothing needs to be whole.
func (w *wanted) unless(s step) step {
	if w.paused {
		return step{do: hold, why: refused(string(v1alpha1.ReasonPaused), "spec.paused is true: set it to false to continue")}
	}
	return s
}

// make gets a template that is not there.
func (w *wanted) make(v View) step {
	if w.importing != "" {
		return step{do: none}
	}
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item.Stage == Imported && w.is(item) && item.Name != doomed(item):
			return step{do: finish, item: item}
		case item.Stage != Whole: // what an import left that nobody goes on with
			return step{do: remove, item: item}
		}
	}
	if name := w.temporary(); v.Others[name] {
		return step{do: hold, why: refused(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it", name)}
	}
	return step{do: fetch}
}

// replace gives the name to what is fresh. What has it keeps it if the name that it would be kept under is taken.
func (w *wanted) replace(v View, present, fresh *Item) step {
	if present.Busy && !w.overdue {
		return step{do: hold, item: present, why: refused(templateInUse,
			"machines are being created from %s: it is replaced when they are done, or after %s", w.name, duration.HumanDuration(swapPatience))}
	}
	name := doomed(present)
	if w.keep > 0 {
		name = w.kept(present)
	}
	if v.Others[name] {
		return step{do: hold, why: refused(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it, or set spec.keepVersions to 0", name)}
	}
	if other := find(v, func(item *Item) bool { return item.Name == name }); other != nil {
		return step{do: remove, item: other} // an earlier one of that release
	}
	return step{do: replace, old: present, item: fresh, name: name}
}

// tidy takes away what is left over, the oldest first, and gives what is kept its name.
func (w *wanted) tidy(v View, present *Item) step {
	kept := w.keeps(v, present)
	var busy *Item
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item == present, w.importing != "" && item.Name == w.importing:
		case slices.Contains(kept, item):
			name := w.kept(item)
			if item.Name != name && !v.Others[name] && find(v, func(i *Item) bool { return i.Name == name }) == nil && !w.paused {
				return step{do: put, item: item, name: name}
			}
		case item.Busy:
			busy = item
		default:
			return w.unless(step{do: remove, item: item})
		}
	}
	if busy != nil {
		return step{do: hold, item: busy, why: refused(templateInUse, "machines are being created from %s: it is destroyed when they are done", busy.Name)}
	}
	return step{do: none}
}

// keeps are the versions that stay beside the present one: whole ones of other releases, the newest of each, as many as are wanted.
func (w *wanted) keeps(v View, present *Item) (kept []*Item) {
	for i := range v.Items {
		if item := &v.Items[i]; item.Stage == Whole && item.Name != doomed(item) && item.Release != present.Release {
			kept = append(kept, item)
		}
	}
	slices.SortStableFunc(kept, func(a, b *Item) int { return b.Made.Compare(a.Made) })
	seen := map[string]bool{}
	kept = slices.DeleteFunc(kept, func(item *Item) bool {
		again := seen[item.Release]
		seen[item.Release] = true
		return again
	})
	return kept[:min(w.keep, len(kept))]
}

// vanish takes away everything.
func (w *wanted) vanish(v View) step {
	if w.importing != "" {
		return step{do: none}
	}
	var busy *Item
	for i := range v.Items {
		if v.Items[i].Busy {
			busy = &v.Items[i]
			continue
		}
		return step{do: remove, item: &v.Items[i]}
	}
	if busy != nil {
		return step{do: hold, item: busy, why: refused(templateInUse, "machines are being created from %s: it is destroyed when they are done", busy.Name)}
	}
	return step{do: vanished}
}

func find(v View, is func(*Item) bool) *Item {
	for i := range v.Items {
		if is(&v.Items[i]) {
			return &v.Items[i]
		}
	}
	return nil
}

// is reports whether an item is the version that is wanted. Once it is whole its release says so, which rolls back to one that was kept; of
// one that is not, what it is made of must be what the spec asks for now.
func (w *wanted) is(item *Item) bool {
	return item.Release == w.Release && (item.Stage == Whole || item.Digest == w.Digest)
}

func (w *wanted) fresh(item *Item) bool {
	return item.Stage == Whole && w.is(item) && !w.named(item) && !w.failed[item.MoRef]
}

func (w *wanted) named(item *Item) bool { return item.Name == w.name }

// last is the whole template that had the name last, or what comes nearest to that.
func (w *wanted) last(v View) (last *Item) {
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item.Stage != Whole, w.failed[item.MoRef]:
		case item.MoRef == w.was:
			return item
		case last == nil, item.Name != doomed(item) && last.Name == doomed(last), item.Made.After(last.Made) && item.Name != doomed(item):
			last = item
		}
	}
	return last
}

// kept is what a version is called that was replaced and is kept.
func (w *wanted) kept(item *Item) string { return w.name + "-" + item.Release }

// temporary is what the version that is wanted is called until it is whole. It depends on the version: vCenter names the folder of the
// files after it, and does not rename that.
func (w *wanted) temporary() string { return "sallyport-new-" + short(w.Digest, w.Release) }

// doomed is what an item is called that is being destroyed. Taking that name is what decides it: whoever has seen the item as it was
// before can do nothing more with it.
func doomed(item *Item) string { return "sallyport-old-" + short(item.InstanceUUID) }

// digest tells apart what imports of one release make, while they are not whole.
func digest(owner types.UID, spec *v1alpha1.VSphereTemplateSpec) string {
	var tags []string
	for _, tag := range spec.Tags {
		tags = append(tags, tag.Category+"\n"+tag.Name)
	}
	slices.Sort(tags)
	secure := ""
	if spec.SecureBoot != nil {
		secure = map[bool]string{true: "secure", false: "not secure"}[*spec.SecureBoot]
	}
	return short(append([]string{
		string(owner), spec.Source.SHA256, string(spec.DiskType), string(spec.Firmware), secure,
	}, tags...)...)
}

// short is a name for some texts that nothing else has.
func short(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
