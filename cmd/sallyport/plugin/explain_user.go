package plugin

import (
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The names that the API server gives to groups and users.
const (
	authenticated, unauthenticated = "system:authenticated", "system:unauthenticated"
	anonymous                      = "system:anonymous"
	serviceAccount                 = "system:serviceaccount:"
	serviceAccounts                = "system:serviceaccounts"
)

// impersonated takes --as and what belongs to it off the flags, and gives the user whom they name; nil if they name none. What is
// explained is read by the caller, who need not have the right to impersonate.
func (p *plugin) impersonated() *authenticationv1.UserInfo {
	f := p.flags
	if *f.Impersonate == "" {
		return nil // with --as-group alone, the API server is asked and says what is wrong
	}
	user := &authenticationv1.UserInfo{Username: *f.Impersonate, UID: *f.ImpersonateUID, Groups: slices.Clone(*f.ImpersonateGroup)}
	for _, extra := range *f.ImpersonateUserExtra {
		key, value, _ := strings.Cut(extra, "=")
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = append(user.Extra[key], value)
	}
	*f.Impersonate, *f.ImpersonateUID, *f.ImpersonateGroup, *f.ImpersonateUserExtra = "", "", nil, nil
	user.Groups = groupsOf(user)
	return user
}

// groupsOf adds the groups that the API server adds to those of a user who is impersonated.
func groupsOf(user *authenticationv1.UserInfo) []string {
	groups := user.Groups
	account, is := strings.CutPrefix(user.Username, serviceAccount)
	if namespace, _, found := strings.Cut(account, ":"); is && found && len(groups) == 0 {
		groups = []string{serviceAccounts, serviceAccounts + ":" + namespace}
	}
	switch {
	case slices.Contains(groups, authenticated) || slices.Contains(groups, unauthenticated):
		return groups
	case user.Username == anonymous:
		return append(groups, unauthenticated)
	}
	return append(groups, authenticated)
}

// policyViewer is the ClusterRole that lets people read the RegoPolicies, as the chart names it unless it is told another name.
const policyViewer = product + "-policy-viewer"

// unread says why the RegoPolicies cannot be read, and the way out.
func unread(err error) error {
	err = fmt.Errorf("reading the RegoPolicies, which are what is explained: %w", err)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nAsk a cluster administrator for: kubectl create clusterrolebinding %[2]s-USER --clusterrole=%[2]s --user=USER", err, policyViewer)
	}
	return err
}
