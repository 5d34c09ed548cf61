package template

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

func TestMetrics(t *testing.T) {
	p := newWorld(t.Context()).process()
	registry, elected := prometheus.NewRegistry(), make(chan struct{})
	p.r.Metrics = NewMetrics(registry)
	must(t, p.r.Metrics.register(p, elected))
	told := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sallyport_template_swaps_total", "sallyport_template_failure_domains"); err != nil {
			t.Error(err)
		}
	}
	p.create(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains = append(s.FailureDomains, v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder})
	})
	p.settle(t)
	swaps := func(failed, succeeded int) string {
		return fmt.Sprintf(`# HELP sallyport_template_swaps_total Total number of swaps of the names of two templates, by result: Succeeded or Failed. After a failed swap, the previous template gets its name back.
# TYPE sallyport_template_swaps_total counter
sallyport_template_swaps_total{result="Failed"} %d
sallyport_template_swaps_total{result="Succeeded"} %d
`, failed, succeeded)
	}
	told(swaps(0, 0)) // by another replica, which leads
	close(elected)
	refused := 0
	p.refuse = func(verb string, item *templates.Item, to string) error {
		if verb == "rename" && to == name && item.Release == "2" && refused == 0 {
			refused++
			return runtime.NewUnavailable(nil, "no answer")
		}
		return nil
	}
	p.change(t, release("2"))
	p.settle(t)
	p.add(otherFolder, "", templates.Item{Name: name + "-2", Mark: templates.Mark{Release: "x"}, Stage: templates.Whole})
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.KeepVersions = 1; release("3")(s) })
	p.settle(t)
	told(`# HELP sallyport_template_failure_domains Number of failure domains of VSphereTemplates, by the reason of their condition Ready, such as TemplateReady.
# TYPE sallyport_template_failure_domains gauge
sallyport_template_failure_domains{reason="ForeignTemplate"} 1
sallyport_template_failure_domains{reason="TemplateReady"} 1
` + swaps(1, 3))
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) {
		return nil, runtime.NewInvalidSpec(nil, "spec.source.sha256: the content has another")
	}
	p.change(t, release("4"))
	for range 2 {
		_, err := p.pass()
		must(t, err)
	}
	if got := testutil.CollectAndCount(p.r.Metrics.imports); got != 2 {
		t.Errorf("imports have %d results, want Succeeded and InvalidSpec", got)
	}
	must(t, p.Delete(p.ctx, p.template()))
	p.now = p.now.Add(time.Hour)
	p.settle(t)
	told(swaps(1, 3))
}
