package template

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// action is the next action in a failure domain.
type action string

// The actions. Each is one change in vCenter, except replace (two renames) and remove (a rename and the removal).
const (
	none     action = "none"     // The template is in the wanted state.
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

// step is the next action and its objects.
type step struct {
	do        action
	item, old *templates.Item
	name      string
	owner     types.UID
	why       *blockReason
}

// wanted is the wanted content of a failure domain.
type wanted struct {
	templates.Mark
	object types.NamespacedName // key of the VSphereTemplate
	// earlier decides about items of an earlier VSphereTemplate of that name.
	earlier runtime.Earlier

	name   string // name of the template
	keep   int    // number of replaced versions to keep
	paused bool
	gone   bool   // remove everything: the VSphereTemplate is being deleted, or no longer has this failure domain
	was    string // MoRef of the last item with the name, from the status
	// importing is the temporary name of the running import, or empty: that item is not touched.
	importing string
	// layout is the disk layout of the current template, if there is one.
	layout v1alpha1.VSphereDiskType
	// overdue is set if the swap of names has waited long enough for machines that are being created: they reference
	// the template by ID, so a new name does not harm them.
	overdue bool
	// failed contains the MoRefs of items whose rename to the name just failed: another item gets it meanwhile.
	failed map[string]bool
}

// The reasons of blocks are those of conditions.
const (
	foreignTemplate = string(v1alpha1.ReasonForeignTemplate)
	templateInUse   = string(v1alpha1.ReasonTemplateInUse)
)

// next returns the next action for the content of the folder. It ensures that the name always refers to a complete
// template:
//
//   - The name is taken from a template only if another complete one is there to take it.
//   - If the name is free, a complete template takes it: the wanted one if it exists, else the one that had it.
//   - Partial and leftover items are removed only while a complete template has the name, or no complete one exists.
//   - Objects of others block and are never touched.
//
// If a process dies between two changes, the next one continues from this table.
func (w *wanted) next(v templates.View) step {
	if w.gone {
		return w.removeAll(v)
	}
	if owner := v.Earlier[w.name].Owner; owner != "" {
		return w.unlessPaused(w.takeOver(owner))
	}
	if v.Others[w.name] {
		return step{do: hold, why: blocked(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it", w.name)}
	}
	present, fresh := find(v, w.named), find(v, w.fresh)
	switch {
	case present == nil && fresh != nil:
		return step{do: promote, item: fresh, name: w.name}
	case present == nil && w.lastNamed(v) != nil:
		return step{do: promote, item: w.lastNamed(v), name: w.name}
	case present != nil && present.Stage == templates.Imported && w.matches(present):
		return w.unlessPaused(step{do: finish, item: present})
	case present != nil && present.Stage != templates.Whole:
		return w.unlessPaused(step{do: remove, item: present})
	case present != nil && w.matches(present):
		return w.cleanUp(v, present)
	case fresh != nil:
		return w.unlessPaused(w.replace(v, present, fresh))
	}
	return w.unlessPaused(w.create(v))
}

// takeOver takes over the items of an earlier VSphereTemplate of the same namespace and name, if that was decided.
func (w *wanted) takeOver(owner types.UID) step {
	if w.earlier == runtime.TakeOver {
		return step{do: inherit, owner: owner}
	}
	return step{do: hold, why: blocked(string(v1alpha1.ReasonOwnedByAnother), "template %s in the folder is marked for %s with another UID, as after a restore, or in "+
		"another cluster. To use it: %s. To create another one: rename or remove it in vCenter",
		w.name, w.object, commands.Line("kubectl", "sallyport", "take-over", "svst", w.object.Name, "-n", w.object.Namespace))}
}

// unlessPaused holds back a step that is not needed for a complete template while the VSphereTemplate is paused.
func (w *wanted) unlessPaused(s step) step {
	if w.paused {
		return step{do: hold, why: blocked(string(v1alpha1.ReasonPaused), "spec.paused is true: set it to false to continue")}
	}
	return s
}

// create returns the step toward a missing template.
func (w *wanted) create(v templates.View) step {
	if w.importing != "" {
		return step{do: none}
	}
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item.Stage == templates.Imported && w.matches(item) && item.Name != doomedName(item):
			return step{do: finish, item: item}
		case item.Stage != templates.Whole: // left by an import that nothing continues
			return step{do: remove, item: item}
		}
	}
	if name := w.temporaryName(); v.Others[name] {
		return step{do: hold, why: blocked(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it", name)}
	}
	return step{do: fetch}
}

// replace assigns the template's name to a complete item. The current template keeps the name if the one to which it
// would be renamed is taken.
func (w *wanted) replace(v templates.View, present, fresh *templates.Item) step {
	if present.Busy && !w.overdue {
		return step{do: hold, item: present, why: blocked(templateInUse,
			"machines are being created from %s: it is replaced when they are done, or after %s", w.name, duration.HumanDuration(swapPatience))}
	}
	name := doomedName(present)
	if w.keep > 0 {
		name = w.keptName(present)
	}
	if v.Others[name] {
		return step{do: hold, why: blocked(foreignTemplate, "the folder contains a machine named %s that does not belong to this VSphereTemplate: rename or remove it, or set spec.keepVersions to 0", name)}
	}
	if other := find(v, func(item *templates.Item) bool { return item.Name == name }); other != nil {
		return step{do: remove, item: other} // an earlier item of that release
	}
	return step{do: replace, old: present, item: fresh, name: name}
}

// cleanUp removes leftovers, oldest first, and restores the names of kept versions.
func (w *wanted) cleanUp(v templates.View, present *templates.Item) step {
	kept := w.keptVersions(v, present)
	var busy *templates.Item
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item == present, w.importing != "" && item.Name == w.importing:
		case slices.Contains(kept, item):
			name := w.keptName(item)
			if item.Name != name && !v.Others[name] && find(v, func(i *templates.Item) bool { return i.Name == name }) == nil && !w.paused {
				return step{do: put, item: item, name: name}
			}
		case item.Busy:
			busy = item
		default:
			return w.unlessPaused(step{do: remove, item: item})
		}
	}
	if busy != nil {
		return step{do: hold, item: busy, why: blocked(templateInUse, "machines are being created from %s: it is destroyed when they are done", busy.Name)}
	}
	return step{do: none}
}

// keptVersions returns the versions kept beside the current one: the newest complete item of each other release, up
// to spec.keepVersions.
func (w *wanted) keptVersions(v templates.View, present *templates.Item) (kept []*templates.Item) {
	for i := range v.Items {
		if item := &v.Items[i]; item.Stage == templates.Whole && item.Name != doomedName(item) && item.Release != present.Release {
			kept = append(kept, item)
		}
	}
	slices.SortStableFunc(kept, func(a, b *templates.Item) int { return b.Made.Compare(a.Made) })
	seen := map[string]bool{}
	kept = slices.DeleteFunc(kept, func(item *templates.Item) bool {
		again := seen[item.Release]
		seen[item.Release] = true
		return again
	})
	return kept[:min(w.keep, len(kept))]
}

func (w *wanted) removeAll(v templates.View) step {
	if w.importing != "" {
		return step{do: none}
	}
	var busy *templates.Item
	for i := range v.Items {
		if v.Items[i].Busy {
			busy = &v.Items[i]
			continue
		}
		return step{do: remove, item: &v.Items[i]}
	}
	if busy != nil {
		return step{do: hold, item: busy, why: blocked(templateInUse, "machines are being created from %s: it is destroyed when they are done", busy.Name)}
	}
	return step{do: vanished}
}

func find(v templates.View, is func(*templates.Item) bool) *templates.Item {
	for i := range v.Items {
		if is(&v.Items[i]) {
			return &v.Items[i]
		}
	}
	return nil
}

// matches reports whether an item is the wanted version. A complete item matches by its release, so that a kept one
// serves a rollback; an incomplete item must also have the current digest.
func (w *wanted) matches(item *templates.Item) bool {
	return item.Release == w.Release && (item.Stage == templates.Whole || item.Digest == w.Digest)
}

func (w *wanted) fresh(item *templates.Item) bool {
	return item.Stage == templates.Whole && w.matches(item) && !w.named(item) && !w.failed[item.MoRef]
}

func (w *wanted) named(item *templates.Item) bool { return item.Name == w.name }

// lastNamed returns the complete template that had the name last, or the best substitute.
func (w *wanted) lastNamed(v templates.View) (last *templates.Item) {
	for i := range v.Items {
		item := &v.Items[i]
		switch {
		case item.Stage != templates.Whole, w.failed[item.MoRef]:
		case item.MoRef == w.was:
			return item
		case last == nil, item.Name != doomedName(item) && last.Name == doomedName(last), item.Made.After(last.Made) && item.Name != doomedName(item):
			last = item
		}
	}
	return last
}

func (w *wanted) keptName(item *templates.Item) string { return w.name + "-" + item.Release }

// temporaryName returns the name of the wanted version until it is complete. It depends on the version, because
// vCenter names the folder of the files after it and never renames that.
func (w *wanted) temporaryName() string { return "sallyport-new-" + shortHash(w.Digest, w.Release) }

// doomedName returns the name of an item that is about to be destroyed. The rename is the decision: a process that
// has read the item before it can no longer change it.
func doomedName(item *templates.Item) string { return "sallyport-old-" + shortHash(item.InstanceUUID) }

// digest returns the digest of what an import produces, to compare incomplete items.
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
	return shortHash(append([]string{
		string(owner), spec.Source.SHA256, string(spec.DiskType), string(spec.Firmware), secure,
	}, tags...)...)
}

func shortHash(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
