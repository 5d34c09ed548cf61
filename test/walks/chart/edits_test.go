package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// edit opens the policy as a user would, in an editor that is a shell command on the file $1.
func (w *walk) edit(command string) {
	w.Helper()
	if r := w.tryEdit(command); r.code != 0 {
		w.Fatalf("kubectl edit rego %s: exit %d: %s%s", policy, r.code, r.stdout, r.stderr)
	}
}

func (w *walk) tryEdit(command string) result {
	w.Helper()
	editor := filepath.Join(w.bin, "editor")
	w.Must(os.WriteFile(editor, []byte("#!/bin/sh\nset -e\n"+command+"\n"), 0o700))
	return w.patiently("", w.variables("KUBE_EDITOR="+editor, "TMPDIR="+w.bin), "edit", "rego", policy)
}

// reworded is the editor's command that has the policy refuse with other words. Its tests say them too.
func reworded(from, to string) string {
	return fmt.Sprintf(`sed -i 's/%s/%s/g' "$1"`, strings.TrimPrefix(from, "stop "), strings.TrimPrefix(to, "stop "))
}

// changes edits the policy under the load and returns when all replicas decide by it: by the old set or the new one, and never
// by anything else; and by the new one from then on.
func (w *walk) changes(what, from, to string, edit func()) {
	w.Helper()
	mark := w.load.Now()
	edit()
	saved := time.Now()
	pods := w.pods()
	took := make([]time.Duration, len(pods))
	var all sync.WaitGroup
	for i, pod := range pods {
		all.Go(func() { took[i] = w.decides(pod, to, saved) })
	}
	all.Wait()
	everywhere := time.Now()
	w.more(3)
	w.check(what, w.usual.With(secondStop, from, to), w.load.Since(mark, time.Time{}))
	w.usual = w.usual.With(secondStop, to)
	w.check(what+", when both replicas had it", w.usual, w.load.Since(mark, everywhere))
	w.Logf("%s: decides on %s %v ms after kubectl had returned; %d requests meanwhile, none lost",
		what, pods, milliseconds(took), len(w.load.Since(mark, time.Time{})))
	if longest := slices.Max(took); longest > live {
		w.Errorf("%s: decided everywhere only after %v", what, longest)
	}
}

func milliseconds(all []time.Duration) (numbers []int64) {
	for _, d := range all {
		numbers = append(numbers, d.Milliseconds())
	}
	return numbers
}

// decides asks one replica until it refuses with those words.
func (w *walk) decides(pod, words string, since time.Time) time.Duration {
	looks := time.NewTicker(50 * time.Millisecond)
	defer looks.Stop()
	for {
		answer, err := w.ask(w.Context(), pod)
		took := time.Since(since)
		if err == nil && strings.Contains(answer, words) {
			return took
		}
		if took > step.Patience {
			w.Errorf("%s still answers %q (%v), want %q in it", pod, answer, err, words)
			return took
		}
		<-looks.C
	}
}

func (w *walk) edits() {
	// What the user finds in the editor is Rego that can be read, line by line.
	block := `grep -q '^ *source: |' "$1"` + "\n"
	w.changes("kubectl edit", shipped, edited, func() { w.edit(block + reworded(shipped, edited)) })
	w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonCurrentRevision)
	if message := w.shows(v1alpha1.ConditionEdited, metav1.ConditionTrue, v1alpha1.ReasonFieldsEdited); !strings.Contains(message, "spec.modules") {
		w.Errorf("condition Edited does not name the field: %s", message)
	}
	w.changes("another edit", edited, reedited, func() { w.edit(reworded(edited, reedited)) })
	w.changes("an edit that is taken back", reedited, edited, func() { w.edit(reworded(reedited, edited)) })
}

// broken is where in the policy the walk puts something that is no Rego.
func (w *walk) broken() (file string, line int) {
	w.Helper()
	module := w.rego().Spec.Modules[0]
	before, _, found := strings.Cut(module.Source, "\ndeny contains {")
	if !found {
		w.Fatalf("there is no denial in %s", module.Name)
	}
	return module.Name, strings.Count(before, "\n") + 2
}

// slip is the editor's command that has the policy not compile.
const slip = `sed -i '0,/^\( *\)deny contains {$/s//\1deny contains } {/' "$1"`

// breaks: an edit that does not compile is refused; one by somebody who has overridden that is stored, and decides nothing.
func (w *walk) breaks() {
	file, line := w.broken()
	place := fmt.Sprintf("%s:%d:", file, line)
	before := w.rego()
	active := before.Status.ActiveRevision
	w.throughout("an edit that is refused", w.usual, func() {
		r := w.tryEdit(slip)
		w.reads("kubectl edit rego", r, "[policies-self/CompileFailed]", policy, place)
		if r.code == 0 || w.rego().Generation != before.Generation {
			w.Errorf("an edit that does not compile is stored: %s", r.stdout)
		}
	})
	w.throughout("policies are stored unseen", w.usual, w.unguards)
	w.throughout("an edit that does not compile", w.usual, func() {
		w.edit(slip)
		message := w.shows(v1alpha1.ConditionCompiled, metav1.ConditionFalse, v1alpha1.ReasonCompileFailed)
		if !strings.Contains(message, place) {
			w.Errorf("it does not say where: %q without %q", message, place)
		}
		w.event("RegoPolicy", policy, string(v1alpha1.ReasonCompileFailed), place)
		w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonLastGoodRevision)
	})
	if now := w.rego().Status.ActiveRevision; now != active {
		w.Errorf("revision %s decides, it was %s", now, active)
	}
	w.reads("kubectl sallyport policies", w.try("", "sallyport", "policies"), policy, file)
}

// unguards has both replicas let broken policies pass.
func (w *walk) unguards() {
	w.kubectl("patch rego policies-self --type=merge", `--patch={"spec": {"mode": "Audit"}}`)
	review, err := install.Creation(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "RegoPolicy", "metadata": map[string]any{"name": "walk-broken"},
		"spec": map[string]any{"package": "walk.broken", "modules": []any{map[string]any{"name": "broken.rego", "source": "package"}}},
	}}, "walker")
	w.Must(err)
	for _, pod := range w.pods() {
		w.Until(pod+" lets a broken policy pass", func() (string, bool) {
			answer, err := w.site.ask(w.Context(), pod, review)
			if err != nil {
				return err.Error(), false
			}
			return install.Answered(answer), answer.Allowed
		})
	}
}

// event waits for an event about an object, with a text in its note.
func (w *walk) event(kind, name, reason, text string) {
	w.Helper()
	hasEvent(w.T, w.client, kind, name, reason, text)
}
