package reports

import (
	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Limits of the reports of a policy: reports, results of one and results of all. The rest is only counted. With texts as short as in the
// status of a RegoPolicy, the largest report has about half of etcd's limit.
const (
	maxReports = 500
	maxResults = 200
	maxOfAll   = 5000
)

// Book has the versions of a policy's reports from before its audit. A report that another client has written since is not overwritten.
type Book struct {
	writer *Writer
	policy string
	before map[place]metav1.ObjectMeta
}

// Page collects the results of an audit of one policy for its reports.
type Page struct {
	tallies map[string]*tally // by namespace
	kept    int               // results
}

type tally struct {
	summary openreports.ReportSummary
	results []openreports.ReportResult
}

// found returns the number of results, including those that are left out.
func (t *tally) found() int { return t.summary.Fail + t.summary.Warn + t.summary.Error }

func (p *Page) of(namespace string) *tally {
	if p.tallies == nil {
		p.tallies = map[string]*tally{}
	}
	if p.tallies[namespace] == nil {
		p.tallies[namespace] = &tally{}
	}
	return p.tallies[namespace]
}

// Passes counts compliant objects of a namespace.
func (p *Page) Passes(namespace string, count int) { p.of(namespace).summary.Pass += count }

// Passed returns the number of compliant objects.
func (p *Page) Passed() (count int) {
	for _, t := range p.tallies {
		count += t.summary.Pass
	}
	return count
}

// LeftOut counts violations of an object without adding results.
func (p *Page) LeftOut(namespace string, mode v1alpha1.PolicyMode, count int) {
	if mode == v1alpha1.ModeEnforce {
		p.of(namespace).summary.Fail += count
	} else {
		p.of(namespace).summary.Warn += count
	}
}

// Fails adds a violation of an object. It is scored only if the policy is enforced there.
func (p *Page) Fails(object corev1.ObjectReference, mode v1alpha1.PolicyMode, reason, message string) {
	p.LeftOut(object.Namespace, mode, 1)
	if mode == v1alpha1.ModeEnforce {
		p.add(object, mode, openreports.ReportResult{Rule: reason, Result: "fail", Scored: true, Description: message})
		return
	}
	p.add(object, mode, openreports.ReportResult{Rule: reason, Result: "warn", Description: message})
}

// Undecided adds an object that could not be evaluated.
func (p *Page) Undecided(object corev1.ObjectReference, mode v1alpha1.PolicyMode, message string) {
	p.of(object.Namespace).summary.Error++
	p.add(object, mode, openreports.ReportResult{Result: "error", Scored: mode == v1alpha1.ModeEnforce, Description: message})
}

func (p *Page) add(object corev1.ObjectReference, mode v1alpha1.PolicyMode, result openreports.ReportResult) {
	t := p.of(object.Namespace)
	if len(t.results) == maxResults || p.kept == maxOfAll {
		return
	}
	result.Source, result.Properties = source, map[string]string{"mode": string(mode)}
	result.Subjects = []corev1.ObjectReference{object}
	t.results = append(t.results, result)
	p.kept++
}
