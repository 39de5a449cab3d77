#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+1e-9*t.tv_nsec;}
__attribute__((target("avx512f")))
int main(){for(size_t kb=256;kb<=65536;kb*=2){size_t n=kb*1024/4;float*p=aligned_alloc(64,n*4);for(size_t i=0;i<n;i++)p[i]=1;
double best=1e9;for(int r=0;r<20;r++){int it=(64<<20)/(n*4)+1;double t=now();__m512 a[8];for(int j=0;j<8;j++)a[j]=_mm512_setzero_ps();for(int k=0;k<it;k++)for(size_t i=0;i<n;i+=128)for(int j=0;j<8;j++)a[j]=_mm512_fmadd_ps(_mm512_load_ps(p+i+16*j),_mm512_set1_ps(1.5f),a[j]);t=(now()-t)/it;if(t<best)best=t;float s=0;for(int j=0;j<8;j++)s+=_mm512_reduce_add_ps(a[j]);if(s==3)printf("x");}
double pf=1e9;for(int r=0;r<20;r++){int it=(64<<20)/(n*4)+1;double t=now();__m512 a[8];for(int j=0;j<8;j++)a[j]=_mm512_setzero_ps();for(int k=0;k<it;k++)for(size_t i=0;i<n;i+=128){for(int j=0;j<8;j++){_mm_prefetch((char*)(p+i+16*j+1024),_MM_HINT_T0);a[j]=_mm512_fmadd_ps(_mm512_load_ps(p+i+16*j),_mm512_set1_ps(1.5f),a[j]);}}t=(now()-t)/it;if(t<pf)pf=t;float s=0;for(int j=0;j<8;j++)s+=_mm512_reduce_add_ps(a[j]);if(s==3)printf("x");}
printf("%6zu KB %.1f GB/s %.1f us | prefetch %.1f GB/s\n",kb,n*4/best/1e9,best*1e6,n*4/pf/1e9);free(p);}}
