// Package rbac compares what somebody is allowed in a cluster with what they do there: neither may be more than the other.
package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Right is one thing that somebody may do, or does. In one that is granted an empty Namespace or Name means all of them.
type Right struct {
	Namespace       string
	Group, Resource string // Resource with its subresource, as in pods/log
	Verb            string
	Name            string
}

// Grant is a right and who gives it.
type Grant struct {
	Right
	By string
}

// Use is a right that was made use of.
type Use struct {
	Right
	Times     int
	Forbidden int // how often it was not granted
}

// String names it as an RBAC rule would.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		return text + " in namespace " + r.Namespace
	}
	return text + " in all namespaces or in none"
}

// covers tells whether who has this right may do that.
func (r Right) covers(other Right) bool {
	return (r.Namespace == "" || r.Namespace == other.Namespace) && matches(r.Group, other.Group) &&
		(matches(r.Resource, other.Resource) || ofAny(r.Resource, other.Resource)) && matches(r.Verb, other.Verb) &&
		(r.Name == "" || r.Name == other.Name)
}

func matches(rule, what string) bool { return rule == rbacv1.ResourceAll || rule == what }

// ofAny tells whether a rule is for this subresource of any resource, as in */scale.
func ofAny(rule, resource string) bool {
	sub, is := strings.CutPrefix(rule, "*/")
	_, other, has := strings.Cut(resource, "/")
	return is && has && sub == other
}

// Granted gives all that roles give to a ServiceAccount by its name. What every user may do, such as discovery, is not in it.
func Granted(ctx context.Context, c kubernetes.Interface, namespace, name string) ([]Grant, error) {
	is := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == name
		})
	}
	wide, err := c.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing ClusterRoleBindings: %w", err)
	}
	narrow, err := c.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing RoleBindings: %w", err)
	}
	var all []Grant
	add := func(subjects []rbacv1.Subject, namespace string, ref rbacv1.RoleRef) error {
		if !is(subjects) {
			return nil
		}
		rules, err := rulesOf(ctx, c, namespace, ref)
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
		}
		all = append(all, expand(ref.Kind+" "+ref.Name, namespace, rules)...)
		return nil
	}
	for _, b := range wide.Items {
		if err := add(b.Subjects, "", b.RoleRef); err != nil {
			return nil, err
		}
	}
	for _, b := range narrow.Items {
		if err := add(b.Subjects, b.Namespace, b.RoleRef); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func rulesOf(ctx context.Context, c kubernetes.Interface, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "Role" {
		role, err := c.RbacV1().Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	role, err := c.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return role.Rules, nil
}

// expand gives each right of rules by itself.
func expand(role, namespace string, rules []rbacv1.PolicyRule) []Grant {
	var all []Grant
	for i, rule := range rules {
		by := fmt.Sprintf("rule %d of %s", i+1, role)
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				all = append(all, Grant{Right{Verb: verb, Resource: url}, by})
			}
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, Grant{Right{namespace, group, resource, verb, name}, by})
					}
				}
			}
		}
	}
	return all
}
