package registration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Limits in bytes of JSON. All policies share one object for each kind of webhook, and the API server stores no object above 1.5 MiB.
const (
	// mostBytes limits the entries of one policy, without their client configuration.
	mostBytes = 64 << 10
	// mostBytesTogether limits all entries of a webhook configuration.
	mostBytesTogether = 1 << 20
)

// fit replaces entries that exceed a limit by the policy's current ones, if any, and returns the reasons by policy name. The oldest
// policies come first. The current entries of all policies are counted first, so that no policy can displace another's.
func (l *pass) fit(s *side, next map[string]*entry) map[string]string {
	byPolicy := map[string][]*entry{}
	for _, e := range next {
		byPolicy[e.policy] = append(byPolicy[e.policy], e)
	}
	names := slices.SortedFunc(maps.Keys(byPolicy), func(a, b string) int {
		return cmp.Or(l.there[a].Compare(l.there[b]), cmp.Compare(a, b))
	})
	used, had, left := 0, map[string]int{}, map[string]string{}
	for _, policy := range names {
		if s.bytes(s.of(policy)) <= mostBytes {
			had[policy] = s.bytesInAll(s.of(policy))
			used += had[policy]
		}
	}
	for _, policy := range names {
		needs := s.bytesInAll(byPolicy[policy])
		why := s.tooLarge(byPolicy[policy])
		if more := needs - had[policy]; why == "" && more > 0 && used+more > mostBytesTogether {
			why = fmt.Sprintf("the policy needs %s of %s %s and the others need %s, but the limit for all policies is %s: "+
				"delete unused policies, or make their spec.match smaller",
				kibibytes(needs), s.kind(), l.Configuration, kibibytes(used-had[policy]), kibibytes(mostBytesTogether))
		}
		if why == "" {
			used += needs - had[policy]
			continue
		}
		left[policy] = why
		for _, e := range byPolicy[policy] {
			delete(next, e.Name)
		}
		if had[policy] == 0 {
			continue
		}
		for _, e := range s.of(policy) {
			next[e.Name] = e
		}
	}
	return left
}

// tooLarge returns why the entries of one policy are too large, "" if they are not.
func (s *side) tooLarge(entries []*entry) string {
	if n := s.bytes(entries); n > mostBytes {
		return fmt.Sprintf("%s: its webhook in the %s needs %s, but the limit for one policy is %s: name fewer resources, users and groups, or write shorter conditions",
			matchPath, s.kind(), kibibytes(n), kibibytes(mostBytes))
	}
	return ""
}

// bytes returns the size of entries without their client configuration.
func (s *side) bytes(entries []*entry) (n int) {
	for _, e := range entries {
		own := e.ValidatingWebhook
		own.ClientConfig = admissionregistrationv1.WebhookClientConfig{}
		n += encoded(own)
	}
	return n
}

// bytesInAll returns the size of entries with the chart's client configuration, whichever they have now.
func (s *side) bytesInAll(entries []*entry) int {
	n := s.bytes(entries)
	if s.sample != nil {
		n += len(entries) * encoded(s.sample.ClientConfig)
	}
	return n
}

func encoded(of any) int {
	text, err := json.Marshal(of)
	if err != nil {
		return mostBytesTogether // it could not be written either
	}
	return len(text)
}

func kibibytes(n int) string { return fmt.Sprintf("%d KiB", (n+1023)>>10) }
