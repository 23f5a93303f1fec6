// A provisioner on the Go reference library that does what nfs_subdir's provision and delete do at the least: make a
// directory, name it in the volume, remove it. It exists so that `make bench` can give ratios within one run.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

type directories struct{ root, server, export string }

func (d *directories) Provision(_ context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	name := o.PVC.Namespace + "-" + o.PVC.Name + "-" + o.PVName
	path := filepath.Join(d.root, name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			MountOptions:                  o.StorageClass.MountOptions,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{Server: d.server, Path: filepath.Join(d.export, name)},
			},
		},
	}, controller.ProvisioningFinished, nil
}

func (d *directories) Delete(_ context.Context, pv *v1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(d.root, filepath.Base(pv.Spec.NFS.Path)))
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	name := flag.String("provisioner", "bench.prov-host/peer", "provisioner name")
	root := flag.String("root", "", "directory that stands for the mounted share")
	qps := flag.Float64("qps", 1000, "client-side requests per second")
	workers := flag.Int("workers", 4, "claim workers and volume workers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	config.QPS, config.Burst = float32(*qps), int(*qps)*2
	client := kubernetes.NewForConfigOrDie(config)
	pc := controller.NewProvisionController(ctx, client, *name, &directories{*root, "127.0.0.1", "/exports/bench"},
		controller.LeaderElection(false), controller.Threadiness(*workers),
		controller.RateLimiter(workqueue.DefaultTypedControllerRateLimiter[string]()))
	pc.Run(ctx)
}
