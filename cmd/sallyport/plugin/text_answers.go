package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// answers prints allowed requests, then allowed requests with warnings, and then denied ones. Requests with the same reasons are in one
// group. text formats a reason.
func (p *page) answers(requests []answer, text func(objection) string) {
	p.line("")
	var groups []string
	of, ranks := map[string][]string{}, map[string]int{}
	for i := range requests {
		a := &requests[i]
		why := a.why(text)
		if of[why] == nil {
			groups = append(groups, why)
		}
		of[why], ranks[why] = append(of[why], a.command()), a.rank()
	}
	slices.SortStableFunc(groups, func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) })
	for _, why := range groups {
		said, reasons, some := strings.Cut(why, "\n")
		if some {
			reasons = ":\n" + reasons
		}
		p.row(said+":", strings.Join(of[why], ", ")+reasons)
	}
}

// diagnose prints the commands that show the problems of policies that failed to decide.
func (p *page) diagnose(what string, requests []answer) {
	var policies []string
	for i := range requests {
		for _, o := range requests[i].Reasons {
			if o.undecided() && !slices.Contains(policies, o.Policy) {
				policies = append(policies, o.Policy)
			}
		}
	}
	if len(policies) > 0 {
		p.line("\nSome requests are denied because a policy failed to decide, not because of the %s. To see the problem:\n", what)
	}
	for _, policy := range policies {
		p.row("  " + policiesCommand(policy))
	}
}

// rank returns the position of the group.
func (a *answer) rank() int {
	switch {
	case a.Verdict == accepted && len(a.Warnings) == 0:
		return 0
	case a.Verdict == accepted:
		return 1
	}
	return 2
}

// command returns the command for a request.
func (a *answer) command() string {
	text := strings.ToLower(string(a.Type))
	if a.Force {
		text += " --force"
	}
	if a.Replicas != nil {
		text += fmt.Sprintf(" --replicas=%d", *a.Replicas)
	}
	return text
}

// headings are the verdicts in text.
var headings = map[verdict]string{
	accepted: "Allowed now", refused: "Denied now", undecided: "Denied now, undecided", forbidden: "Forbidden now", unknown: "Unknown",
}

// why returns the heading of the verdict and, below it, the reasons.
func (a *answer) why(put func(objection) string) string {
	text, reasons := headings[a.Verdict], a.Reasons
	if a.Verdict == accepted && len(a.Warnings) > 0 {
		text, reasons = text+", with warnings", a.Warnings
	}
	for _, o := range reasons {
		text += "\n" + put(o)
	}
	return text
}

// short returns the reason in one line, if possible only with its cause: the page already names object and request, and lists other
// requests.
func (o objection) short() string {
	message := strings.ReplaceAll(cmp.Or(o.Cause, o.Message), "\n", " ")
	if o.Reason != "" {
		message = o.Reason + ": " + message
	}
	return message
}

// whole returns the reason with the complete message, including the way out.
func (o objection) whole() string {
	switch {
	case o.Policy != "":
		return fmt.Sprintf("[%s/%s] %s", o.Policy, o.Reason, o.Message)
	case o.Reason != "":
		return o.Reason + ": " + o.Message
	}
	return o.Message
}
