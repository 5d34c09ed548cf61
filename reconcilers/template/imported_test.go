package template

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// What somebody has planted in the folder, with a mark that says that it is the wanted release, is neither used nor destroyed: it was not
// imported by us, and nobody has verified what is in it.
func TestForgedMark(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	p.has(t, name+"=1", 0)
	owner := string(p.template().UID)
	planted := p.add(folder, owner, templates.Item{Name: "planted", Mark: templates.Mark{Release: "2", Digest: "x"}, Stage: templates.Whole})
	aborted := p.add(folder, owner, templates.Item{Name: "aborted", Mark: templates.Mark{Release: "1", Digest: "x"}, Stage: templates.Partial})
	before := planted.Version + aborted.Version
	p.change(t, release("2"))
	p.settle(t)
	present := p.named(folder, name)
	if present == nil || present.MoRef == planted.MoRef || present.Release != "2" {
		t.Errorf("the name is on %+v", present)
	}
	p.change(t, release("1"))
	p.settle(t)
	if p.named(folder, "planted") == nil || p.named(folder, "aborted") == nil || planted.Version+aborted.Version != before {
		t.Errorf("what was planted was changed: %s", p.describe(folder))
	}
	must(t, p.Delete(p.ctx, p.template()))
	p.settle(t)
	if p.template() != nil || p.named(folder, "planted") == nil {
		t.Errorf("the folder has %s", p.describe(folder))
	}
}

// A planted template that has the name is in the way, and is said to be.
func TestForgedMarkUnderTheName(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	owner := string(p.template().UID)
	planted := p.add(folder, owner, templates.Item{Name: name, Mark: templates.Mark{Release: "1", Digest: "x"}, Stage: templates.Whole})
	p.settle(t)
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonForeignTemplate, name)
	planted.Name = "aside"
	p.settle(t)
	if present := p.named(folder, name); present == nil || present.MoRef == planted.MoRef {
		t.Errorf("the folder has %s", p.describe(folder))
	}
}

// Templates of a status from before imports were recorded are taken as they are, once; and what was imported goes along when its failure
// domain gets another name. Neither depends on which of two writes comes first: the pass's of what it knows, or its import's of the next.
func TestImportedBefore(t *testing.T) {
	for name, begin := range map[string]func(*world) *process{"the pass writes first": (*world).process, "the import writes first": (*world).importFirst} {
		t.Run(name, func(t *testing.T) { importedBefore(t, begin(newWorld(t.Context()))) })
	}
}

func importedBefore(t *testing.T, p *process) {
	p.create(t)
	p.settle(t)
	of := p.template()
	of.Status.FailureDomains[0].Imported = nil
	must(t, p.WithWatch.Status().Update(p.ctx, of))
	p.change(t, release("2"))
	p.settle(t)
	p.has(t, name+"=2", 1)
	if got := p.template().Status.FailureDomains[0].Imported; len(got) != 2 {
		t.Errorf("recorded are %v", got)
	}
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.FailureDomains[0].Name = "renamed" })
	p.settle(t)
	p.has(t, name+"=2", 0)
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) {
		release("3")(s)
		s.FailureDomains[0].Name = "again"
	})
	p.settle(t)
	p.has(t, name+"=3", 1)
	p.ready(t, metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, "")
}

// importFirst gives a process whose passes write the status after the imports that they began have ended.
func (w *world) importFirst() *process {
	p := w.process()
	p.r.Client = interceptor.NewClient(p.Client(p.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			of := o.(*v1alpha1.VSphereTemplate).Status.FailureDomains
			if slices.ContainsFunc(of, func(s v1alpha1.VSphereFailureDomainStatus) bool { return s.Progress != nil }) { // only a pass writes it
				p.r.jobs.ending.Wait()
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
	return p
}

// After a restore of etcd, a template that was imported since the backup is not known: it is left as it is, and is said to be in the way.
func TestTemplateOfYesterday(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	backup := p.template().Status.DeepCopy()
	p.change(t, release("2"))
	p.settle(t)
	today := *p.named(folder, name)

	p.change(t, release("1"))
	of := p.template()
	of.Status = *backup
	must(t, p.WithWatch.Status().Update(p.ctx, of))
	p.renew()
	p.settle(t)
	if present := p.named(folder, name); present == nil || *present != today {
		t.Errorf("the template was %+v and is %+v", today, present)
	}
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonForeignTemplate, name)
}
