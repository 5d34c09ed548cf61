package reports

import (
	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// How many reports there are of a policy, and how many results are in one and in all of them. What is beyond that is counted. As the
// texts are no longer than those in the status of a RegoPolicy, the largest report is about half of what etcd takes.
const (
	maxReports = 500
	maxResults = 200
	maxOfAll   = 5000
)

// Book is the reports of a policy as they were when its audit began. What another client has written since is not overwritten.
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

// tally is what was found in a namespace.
type tally struct {
	summary openreports.ReportSummary
	results []openreports.ReportResult
}

// found is how many results there are, with those that are left out.
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

// Passed is how many those are.
func (p *Page) Passed() (count int) {
	for _, t := range p.tallies {
		count += t.summary.Pass
	}
	return count
}

// LeftOut counts what the policy has against an object, without saying what.
func (p *Page) LeftOut(namespace string, mode v1alpha1.PolicyMode, count int) {
	if mode == v1alpha1.ModeEnforce {
		p.of(namespace).summary.Fail += count
	} else {
		p.of(namespace).summary.Warn += count
	}
}

// Fails notes what the policy has against an object. Only where it is enforced that is scored.
func (p *Page) Fails(object corev1.ObjectReference, mode v1alpha1.PolicyMode, reason, message string) {
	p.LeftOut(object.Namespace, mode, 1)
	if mode == v1alpha1.ModeEnforce {
		p.note(object, mode, openreports.ReportResult{Rule: reason, Result: "fail", Scored: true, Description: message})
		return
	}
	p.note(object, mode, openreports.ReportResult{Rule: reason, Result: "warn", Description: message})
}

// Undecided notes that an object could not be judged.
func (p *Page) Undecided(object corev1.ObjectReference, mode v1alpha1.PolicyMode, message string) {
	p.of(object.Namespace).summary.Error++
	p.note(object, mode, openreports.ReportResult{Result: "error", Scored: mode == v1alpha1.ModeEnforce, Description: message})
}

func (p *Page) note(object corev1.ObjectReference, mode v1alpha1.PolicyMode, result openreports.ReportResult) {
	t := p.of(object.Namespace)
	if len(t.results) == maxResults || p.kept == maxOfAll {
		return
	}
	result.Source, result.Properties = source, map[string]string{"mode": string(mode)}
	result.Subjects = []corev1.ObjectReference{object}
	t.results = append(t.results, result)
	p.kept++
}
